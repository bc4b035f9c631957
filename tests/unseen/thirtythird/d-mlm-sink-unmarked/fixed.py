"""Learnable attention sink, one value for each local head.

Source: https://github.com/NVIDIA/Megatron-LM/pull/7530 (issue 7452, finding 8)
Wrong: the offsets are sharded over TP by heads but are not marked so; the norm code takes them for
copies, counts those of TP rank 0 only, and clipping is too weak.
Repair: set the tensor-parallel attributes.
"""
import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.transformer.module import MegatronModule


class DotProductAttention(MegatronModule):
    def __init__(self, config, layer_number):
        super().__init__(config=config)
        tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.heads_per_partition = config.num_attention_heads // tp_size
        self.softmax_scale = config.kv_channels**-0.5
        self.softmax_offset = torch.nn.Parameter(
            torch.zeros(self.heads_per_partition, dtype=config.params_dtype)
        )
        tensor_parallel.set_tensor_model_parallel_attributes(self.softmax_offset, True, 0, 1)

    def forward(self, query, key, value):
        # [s, b, heads / tp, d]
        scores = torch.einsum("sbnd,tbnd->bnst", query, key) * self.softmax_scale
        sink = self.softmax_offset.view(1, -1, 1, 1).expand(scores.size(0), -1, scores.size(2), 1)
        probs = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
        return torch.einsum("bnst,tbnd->sbnd", probs, value)


def param_is_not_tensor_parallel_duplicate(param):
    return getattr(param, "tensor_model_parallel", False) or (
        parallel_state.get_tensor_model_parallel_rank() == 0
    )


def get_grad_norm(params):
    total = torch.zeros((), device="cuda")
    for p in params:
        if p.main_grad is not None and param_is_not_tensor_parallel_duplicate(p):
            total += p.main_grad.float().pow(2).sum()
    dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
    return total.sqrt()
