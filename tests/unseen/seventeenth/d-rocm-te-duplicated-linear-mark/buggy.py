# Source: ROCm/TransformerEngine PR #715, transformer_engine/pytorch/module/linear.py
# Linear marks every weight as tensor-model-parallel, also with parallel_mode=None, where the
# weight is replicated over the TP group. The optimizer counts such a gradient on each TP rank,
# so the norm used for clipping is too large.
# Repair: is_parallel only if parallel_mode is set.
import torch

from transformer_engine.pytorch.distributed import (
    get_distributed_world_size,
    set_tensor_model_parallel_attributes,
)
from transformer_engine.pytorch.module.base import TransformerEngineBaseModule


class Linear(TransformerEngineBaseModule):
    def __init__(self, in_features, out_features, tp_group=None, parallel_mode=None, sequence_parallel=False):
        super().__init__()
        self.parallel_mode = parallel_mode
        assert parallel_mode in ("column", "row", None)
        self.tp_group = tp_group
        self.sequence_parallel = sequence_parallel
        tp_size = get_distributed_world_size(tp_group)
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight_names = ["weight"]
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        self.reset_parameters()

    def reset_parameters(self, defer_init=False):
        super().reset_parameters(defer_init=defer_init)
        if not defer_init:
            for weight in self.weight_names:
                set_tensor_model_parallel_attributes(
                    tensor=getattr(self, weight),
                    is_parallel=True,  # BUG
                    dim=1 if self.parallel_mode == "row" else 0,
                    stride=1,
                )


def get_grad_norm(params, tp_group):
    """2-norm of the gradients over the tensor-parallel group, each gradient once."""
    first = torch.distributed.get_rank(group=tp_group) == 0
    grads = [p.main_grad for p in params if p.tensor_model_parallel or first]
    total = torch.zeros(1, device="cuda")
    for g in grads:
        total += g.float().norm() ** 2
    torch.distributed.all_reduce(total, group=tp_group)
    return total.sqrt()
