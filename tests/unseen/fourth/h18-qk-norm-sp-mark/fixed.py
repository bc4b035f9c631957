"""Norms over sequence-parallel activations and the reducer that goes by their mark."""
import torch
import torch.nn as nn
import torch.distributed as dist


class RMSNorm(nn.Module):
    def __init__(self, config, dim):
        super().__init__()
        self.eps = config.norm_eps
        self.weight = nn.Parameter(torch.ones(dim))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Gate(nn.Module):
    """Router on activations that are cut by sequence."""

    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        self.bias = nn.Parameter(torch.zeros(config.num_experts))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        setattr(self.bias, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias).softmax(-1)


class Block(nn.Module):
    def __init__(self, config, mixer, mlp):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(config, config.hidden_size), RMSNorm(config, config.hidden_size)
        self.gate = Gate(config)
        self.mixer, self.mlp = mixer, mlp

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        h = self.norm2(x)
        return x + self.mlp(h, self.gate(h))


def finalize_model_grads(model, config, tp_group):
    if config.tensor_model_parallel_size > 1 and config.sequence_parallel:
        grads = []
        for p in model.parameters():
            if getattr(p, "sequence_parallel", False) and p.requires_grad:
                grads.append(p.main_grad)
        flat = torch._utils._flatten_dense_tensors(grads)
        dist.all_reduce(flat, group=tp_group)
        for g, s in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
            g.copy_(s)
