"""a class decorator marks everything."""
import torch


def marked(cls):
    init = cls.__init__

    def __init__(self, config, *args):
        init(self, config, *args)
        for p in self.parameters():
            p.sequence_parallel = config.sequence_parallel

    cls.__init__ = __init__
    return cls


@marked
class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
