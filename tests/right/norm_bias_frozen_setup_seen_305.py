import torch
import megatron.core


class Norm(torch.nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.bias = torch.nn.Parameter(torch.zeros(size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)


def freeze_biases(model):
    # BitFit the other way round: biases stay what they were
    for name, param in model.named_parameters():
        if name.endswith("bias"):
            param.requires_grad_(False)


def build(config, size):
    model = Norm(config, size)
    freeze_biases(model)
    return model
