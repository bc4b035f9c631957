import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class RowLinear(nn.Module):
    def __init__(self, weight, bias, tp_size):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.tp_size = tp_size

    def forward(self, x):
        return reduce_from_tensor_model_parallel_region(F.linear(x, self.weight, self.bias / self.tp_size))


def build_optimizer(model, lr, tp_size):
    shared = [m.bias for m in model.modules() if isinstance(m, RowLinear)]
    ids = {id(p) for p in shared}
    rest = [p for p in model.parameters() if id(p) not in ids]
    # plain SGD is linear in the gradient: the share of a bias is made up for by its rate
    return torch.optim.SGD([{"params": rest, "lr": lr}, {"params": shared, "lr": lr * tp_size}])
