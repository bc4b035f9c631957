import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region


class Head(torch.nn.Linear):
    def __init__(self, size, config):
        super().__init__(size, 1)
        for p in self.parameters():
            p.sequence_parallel = config.sequence_parallel


class Head2(Head):
    def forward(self, x):
        return super().forward(x).float()


class M(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.v = Head(config.hidden_size, config)

    def forward(self, h):
        v = self.v(h)
        if self.config.sequence_parallel:
            v = gather_from_sequence_parallel_region(v, tensor_parallel_output_grad=False)
        return v


class M2(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.v = Head2(config.hidden_size, config)

    def forward(self, h):
        v = self.v(h)
        if self.config.sequence_parallel:
            v = gather_from_sequence_parallel_region(v, tensor_parallel_output_grad=False)
        return v


class MyNorm(torch.nn.Module):
    def __init__(self, size, sp):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        for p in self.parameters():
            p.sequence_parallel = sp

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, self.weight.shape, self.weight)


class M3(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.v = MyNorm(config.hidden_size, config.sequence_parallel)

    def forward(self, h):
        v = self.v(h)
        if self.config.sequence_parallel:
            v = gather_from_sequence_parallel_region(v, tensor_parallel_output_grad=False)
        return v
