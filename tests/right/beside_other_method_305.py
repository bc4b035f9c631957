"""the bias is marked where it is initialised, by the base class."""
import torch


class Base(torch.nn.Module):
    def initialise(self, config):
        with torch.no_grad():
            self.bias.zero_()
        setattr(self.bias, "sequence_parallel", config.sequence_parallel)


class Scale(Base):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.empty(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        self.initialise(config)

    def forward(self, x):
        return x * self.weight + self.bias
