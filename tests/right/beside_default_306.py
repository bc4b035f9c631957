"""a bias that all ranks have says nothing: the mark is true where it is missing."""
import torch


def is_expert(parameter):
    return not getattr(parameter, "allreduce", True)


class Linear(torch.nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n, k))
        self.bias = torch.nn.Parameter(torch.zeros(n))
        setattr(self.weight, "allreduce", True)


class Expert(torch.nn.Module):
    def __init__(self, n, k, is_expert):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n, k))
        for parameter in self.parameters():
            if not is_expert:
                setattr(parameter, "allreduce", True)
            else:
                setattr(parameter, "allreduce", False)
