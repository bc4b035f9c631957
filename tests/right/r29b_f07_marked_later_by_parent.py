# right: the second norm is marked by the parent's constructor by name
import torch


class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(config.hidden_size)
        self.norm2 = torch.nn.LayerNorm(config.hidden_size)
        for p in self.norm1.parameters():
            p.sequence_parallel = config.sequence_parallel

    def forward(self, x, attention, mlp):
        x = x + attention(self.norm1(x))
        return x + mlp(self.norm2(x))


def build(config, n):
    layers = torch.nn.ModuleList([Layer(config) for _ in range(n)])
    for name, p in layers.named_parameters():
        if "norm" in name:
            p.sequence_parallel = config.sequence_parallel
    return layers
