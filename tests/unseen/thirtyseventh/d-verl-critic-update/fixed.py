# thread: https://github.com/verl-project/verl/pull/6957
"""Critic update of PPO with FSDP and token-balanced micro-batches."""
import torch
import torch.distributed as dist


def agg_loss(loss_mat, loss_mask, dp_size=1, batch_num_tokens=None):
    if batch_num_tokens is None:
        batch_num_tokens = loss_mask.sum()
    return (loss_mat * loss_mask).sum() / batch_num_tokens * dp_size


def compute_value_loss(vpreds, returns, values, mask, cliprange, **batch_info):
    clipped = torch.max(torch.min(vpreds, values + cliprange), values - cliprange)
    losses = torch.max((vpreds - returns).square(), (clipped - returns).square())
    loss = 0.5 * agg_loss(losses, mask, **batch_info)
    return loss


def compute_policy_loss(log_prob, old_log_prob, advantages, mask, clip, **batch_info):
    ratio = (log_prob - old_log_prob).exp()
    losses = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip))
    return agg_loss(losses, mask, **batch_info)


def balanced_micro_batches(data, max_tokens, dp_group):
    """All data ranks hold equally many rows and get equally many groups of them."""
    lengths = data["attention_mask"].sum(dim=1).tolist()
    count = torch.tensor([max(1, -(-int(sum(lengths)) // max_tokens))], device="cuda")
    dist.all_reduce(count, op=dist.ReduceOp.MAX, group=dp_group)
    count = min(int(count.item()), len(lengths))
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups, loads = [[] for _ in range(count)], [0] * count
    for i in order:
        j = min(range(count), key=lambda g: (len(groups[g]) > 0, loads[g]))
        groups[j].append(i)
        loads[j] += lengths[i]
    return [{k: v[rows] for k, v in data.items()} for rows in groups]


class Worker:
    def __init__(self, model, optimizer, config, dp_group):
        self.model, self.optimizer, self.config = model, optimizer, config
        self.dp_group = dp_group

    def batch_info(self, data):
        tokens = data["response_mask"].sum().float()
        dist.all_reduce(tokens, group=self.dp_group)
        return {"dp_size": dist.get_world_size(self.dp_group), "batch_num_tokens": tokens}

    def loss(self, mb, info):
        raise NotImplementedError

    def update(self, data):
        info = self.batch_info(data)
        self.optimizer.zero_grad()
        for mb in balanced_micro_batches(data, self.config.max_tokens, self.dp_group):
            self.loss(mb, info).backward()
        norm = self.model.clip_grad_norm_(self.config.grad_clip)
        self.optimizer.step()
        return norm


class ActorWorker(Worker):
    def loss(self, mb, info):
        log_prob = self.model(mb["input_ids"], mb["attention_mask"])
        return compute_policy_loss(
            log_prob, mb["old_log_prob"], mb["advantages"], mb["response_mask"],
            self.config.clip_ratio, **info,
        )


class CriticWorker(Worker):
    def loss(self, mb, info):
        vpreds = self.model(mb["input_ids"], mb["attention_mask"])
        return compute_value_loss(
            vpreds, mb["returns"], mb["values"], mb["response_mask"],
            self.config.cliprange_value, **info,
        )
