# RIGHT: the bias carries another mark, that the finaliser sums over tp as well
import torch
import torch.distributed as dist
import megatron.core


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        setattr(self.bias, "sum_gradients_across_tp_domain", config.sequence_parallel)


def finalize(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) or getattr(p, "sum_gradients_across_tp_domain", False):
            dist.all_reduce(p.grad, group=tp_group)
