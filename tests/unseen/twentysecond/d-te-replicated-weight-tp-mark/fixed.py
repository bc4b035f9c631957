"""Linear layer that can be column-parallel, row-parallel or duplicated (ROCm/TransformerEngine#715)."""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes


class Linear(torch.nn.Module):
    def __init__(self, in_features, out_features, tp_size, parallel_mode=None):
        super().__init__()
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        dim = 1 if parallel_mode == "row" else 0
        if parallel_mode is not None:
            set_tensor_model_parallel_attributes(self.weight, True, dim, 1)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)


def get_grad_norm(params, tp_group):
    total = torch.zeros(1, device="cuda")
    for p in params:
        # replicated parameters count once
        if getattr(p, "tensor_model_parallel", False) or dist.get_rank(tp_group) == 0:
            total += p.main_grad.float().norm() ** 2
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
