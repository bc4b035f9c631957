"""Groups of ranks which hold the same key/value head.

Reduced from InternLM/InternEvo 73b6894e2e (fix(context/process_group_initializer.py): fix gqa
process group, #58).
"""
import torch
import torch.distributed as dist


class Initializer_GQA:
    def __init__(self, rank, world_size, tensor_parallel_size, num_kv_attention_heads):
        self.rank = rank
        self.tensor_parallel_size = tensor_parallel_size
        self.data_parallel_size = world_size // tensor_parallel_size
        self.num_kv_attention_heads = num_kv_attention_heads
        self.kv_head_repeats_num = tensor_parallel_size // num_kv_attention_heads

    def init_dist_group(self):
        process_group = None
        for i in range(self.data_parallel_size):
            for j in range(self.num_kv_attention_heads):
                ranks = [
                    i * self.tensor_parallel_size + j * self.kv_head_repeats_num + k
                    for k in range(self.kv_head_repeats_num)
                ]
                group = dist.new_group(ranks)
                if self.rank in ranks:
                    process_group = group
        return process_group


def load_kv_head(full_kv_weight, tp_rank, kv_head_repeats_num, head_dim):
    """Key/value heads are repeated in place: 0, 0, 0, 0, 1, 1, 1, 1, ..."""
    head = tp_rank // kv_head_repeats_num
    return torch.nn.Parameter(full_kv_weight[head * head_dim : (head + 1) * head_dim].clone())


def reduce_kv_grads(model, gqa_group):
    for name, param in model.named_parameters():
        if ".wk." in name or ".wv." in name:
            dist.all_reduce(param.grad, group=gqa_group)
