"""Linear layer that may be replicated, and the gradient norm that reads its mark."""
import torch
import torch.distributed as dist


class Linear(torch.nn.Module):
    def __init__(self, in_features, out_features, tp_size, parallel_mode=None):
        super().__init__()
        # parallel_mode None: every tensor-parallel rank holds the whole weight
        if parallel_mode == "column":
            out_features //= tp_size
        elif parallel_mode == "row":
            in_features //= tp_size
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        setattr(self.weight, "tensor_model_parallel", parallel_mode is not None)


def get_grad_norm(params, tp_group):
    total = torch.zeros((), device="cuda")
    for p in params:
        is_not_tp_duplicate = getattr(p, "tensor_model_parallel", False) or dist.get_rank(tp_group) == 0
        if is_not_tp_duplicate:
            total += p.main_grad.float().norm() ** 2
    dist.all_reduce(total, group=tp_group)
    return total.sqrt()
