"""a walk over the model marks what the class has not marked itself."""
import torch


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


def mark_biases(model, config):
    for name, parameter in model.named_parameters():
        if name.endswith("norm.bias"):
            setattr(parameter, "sequence_parallel", config.sequence_parallel)
