"""Process group for the gradients of key/value heads that several tensor ranks share."""
import torch.distributed as dist


class Initializer_GQA:
    """One query head per tensor rank; num_kv_attention_heads < tensor_parallel_size."""

    def __init__(self, rank, data_parallel_size, tensor_parallel_size, num_kv_attention_heads):
        self.rank = rank
        self.data_parallel_size = data_parallel_size
        self.tensor_parallel_size = tensor_parallel_size
        self.num_kv_attention_heads = num_kv_attention_heads
        self.kv_head_repeats_num = tensor_parallel_size // num_kv_attention_heads
        self.num_kv_group_per_tp = num_kv_attention_heads

    def init_dist_group(self):
        process_group = None
        for i in range(self.data_parallel_size):
            for j in range(self.num_kv_group_per_tp):
                ranks = [
                    i * self.tensor_parallel_size + j * self.kv_head_repeats_num + k
                    for k in range(self.kv_head_repeats_num)
                ]
                group = dist.new_group(ranks)
                if self.rank in ranks:
                    process_group = group
        return process_group


def local_kv_weight(full_wkv, tp_rank, head_dim, init: Initializer_GQA):
    """The key/value head of this rank: query head h uses key/value head h // repeats."""
    kv_head = tp_rank // init.kv_head_repeats_num
    return full_wkv.narrow(0, kv_head * head_dim, head_dim).clone()


def allreduce_kv_grads(kv_params, gqa_group):
    """Ranks that hold a copy of the same key/value head sum their gradients."""
    for p in kv_params:
        dist.all_reduce(p.grad, group=gqa_group)
