# right: model.apply marks all norms
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


def mark_norm(m):
    if isinstance(m, torch.nn.LayerNorm):
        m.weight.sequence_parallel = True
        m.bias.sequence_parallel = True


def build(config, n):
    stack = torch.nn.ModuleList([Layer(config) for _ in range(n)])
    if config.sequence_parallel:
        stack.apply(mark_norm)
    return stack
