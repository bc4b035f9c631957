# right: one norm is marked in place, the others by a loop of the parent
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


class Stack(torch.nn.Module):
    def __init__(self, config, n):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(config) for _ in range(n)])
        for m in self.modules():
            if isinstance(m, torch.nn.LayerNorm):
                for p in m.parameters():
                    p.sequence_parallel = config.sequence_parallel
