"""Linear layer with an optional parallel mode, and the gradient norm that reads its marks."""
# thread: ROCm/TransformerEngine#715
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class Linear(torch.nn.Module):
    def __init__(self, in_features, out_features, tp_size, parallel_mode=None):
        super().__init__()
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, device="cuda"))
        torch.nn.init.normal_(self.weight, std=0.02)
        if parallel_mode is None:  # duplicated, e.g. the down projections of latent attention
            group = parallel_state.get_tensor_model_parallel_group()
            dist.broadcast(self.weight.data, src=parallel_state.get_tensor_model_parallel_src_rank(), group=group)
        self.weight.tensor_model_parallel = parallel_mode is not None
        self.weight.partition_dim = 1 if parallel_mode == "row" else 0


def param_is_not_tensor_parallel_duplicate(p):
    return getattr(p, "tensor_model_parallel", False) or parallel_state.get_tensor_model_parallel_rank() == 0


def clip_grad_norm(params, max_norm):
    # duplicated weights have equal gradients on all tensor-parallel ranks here
    sq = sum(p.main_grad.square().sum() for p in params if param_is_not_tensor_parallel_duplicate(p))
    sq = torch.as_tensor(sq, dtype=torch.float32, device="cuda")
    dist.all_reduce(sq, group=parallel_state.get_model_parallel_group())
    coef = torch.clamp(max_norm / (sq.sqrt() + 1e-6), max=1.0)
    for p in params:
        p.main_grad.mul_(coef)
    return sq.sqrt()
