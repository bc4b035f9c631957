# Reduced from verl workers/actor/dp_actor.py and utils/seqlen_balancing.py (verl-project/verl issue 6176,
# PR 5511, read). With use_dynamic_bsz a rank splits its mini-batch by token count.
# FSDP's forward and backward are collective, so all data-parallel ranks must run the same number
# of micro-batches.
# What happens: the rank with fewer tokens leaves the loop early, the others hang in an all-gather.
import torch
import torch.distributed as dist


def partition_by_length(seqlens, k):
    order = sorted(range(len(seqlens)), key=lambda i: -seqlens[i])
    bins = [[] for _ in range(k)]
    loads = [0] * k
    for n, i in enumerate(order):
        j = n if n < k else loads.index(min(loads))
        bins[j].append(i)
        loads[j] += seqlens[i]
    return bins


def prepare_dynamic_batch(data, max_token_len, dp_group=None):
    seqlens = data["attention_mask"].sum(dim=1).tolist()
    num_micro_batches = -(-sum(seqlens) // max_token_len)
    if dist.is_initialized() and dp_group is not None:
        num = torch.tensor([num_micro_batches], device="cuda")
        dist.all_reduce(num, op=dist.ReduceOp.MAX, group=dp_group)
        num_micro_batches = num.item()
    assert num_micro_batches <= len(seqlens)
    index_lists = partition_by_length(seqlens, num_micro_batches)
    return [{k: v[idx] for k, v in data.items()} for idx in index_lists], index_lists


class DataParallelPPOActor:
    def __init__(self, config, actor_module, actor_optimizer, dp_group):
        self.config, self.actor_module, self.actor_optimizer = config, actor_module, actor_optimizer
        self.dp_group = dp_group

    def update_policy(self, mini_batches, policy_loss):
        for mini_batch in mini_batches:
            max_token_len = self.config.ppo_max_token_len_per_gpu
            micro_batches, _ = prepare_dynamic_batch(mini_batch, max_token_len=max_token_len)  # BUG
            self.actor_optimizer.zero_grad()
            for micro_batch in micro_batches:
                log_prob = self.actor_module(micro_batch["input_ids"], micro_batch["attention_mask"])
                weight = micro_batch["input_ids"].size(0) / mini_batch["input_ids"].size(0)
                (policy_loss(log_prob, micro_batch) * weight).backward()
            self.actor_module.clip_grad_norm_(self.config.grad_clip)
            self.actor_optimizer.step()
