"""Layer norm whose parameters are marked for the reduction over TP."""
import torch


class FusedLayerNorm(torch.nn.Module):
    def __init__(self, config, hidden_size, eps=1e-5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.bias = torch.nn.Parameter(torch.zeros(hidden_size))
        self.eps = eps
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        setattr(self.bias, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        # x: [s/tp, b, h] with sequence parallelism
        return torch.nn.functional.layer_norm(x, (x.size(-1),), self.weight, self.bias, self.eps)


def allreduce_layernorm_grads(model, tp_group):
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(param.main_grad, group=tp_group)
