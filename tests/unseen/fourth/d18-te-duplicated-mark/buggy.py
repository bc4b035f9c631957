"""A linear layer that may be replicated, with the marks that the gradient norm goes by."""
import torch
import torch.nn as nn
import torch.distributed as dist


class Linear(nn.Module):
    def __init__(self, in_features, out_features, parallel_mode=None, tp_group=None, bias=True):
        super().__init__()
        self.tp_group = tp_group
        self.tp_size = dist.get_world_size(tp_group) if tp_group is not None else 1
        self.parallel_mode = parallel_mode
        self.out_features, self.in_features = out_features, in_features
        if parallel_mode == "column":
            self.out_features = out_features // self.tp_size
        elif parallel_mode == "row":
            self.in_features = in_features // self.tp_size
        self.weight = nn.Parameter(torch.empty(self.out_features, self.in_features))
        self._mark(self.weight, 1 if parallel_mode == "row" else 0)  # BUG
        if bias:
            self.bias = nn.Parameter(torch.zeros(self.out_features))
            if parallel_mode == "column":
                self._mark(self.bias, 0)
        else:
            self.bias = None

    @staticmethod
    def _mark(param, dim):
        param.tensor_model_parallel = True
        param.partition_dim = dim

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


def param_is_not_tensor_parallel_duplicate(param, tp_rank):
    return getattr(param, "tensor_model_parallel", False) or tp_rank == 0


def get_grad_norm(params, mp_group, tp_rank):
    total = torch.zeros(1, device="cuda")
    for p in params:
        if p.grad is not None and param_is_not_tensor_parallel_duplicate(p, tp_rank):
            total += p.grad.norm(2) ** 2
    dist.all_reduce(total, group=mp_group)
    return total.sqrt()


class LatentAttention(nn.Module):
    def __init__(self, config, tp_group):
        super().__init__()
        self.q_down = Linear(config.hidden, config.q_rank, parallel_mode=None, tp_group=tp_group, bias=False)
        self.q_up = Linear(config.q_rank, config.q_dim, parallel_mode="column", tp_group=tp_group, bias=False)
