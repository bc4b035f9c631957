# RIGHT: heads are whole: attention is replicated, only the MLP is split
import torch
from megatron import mpu


class Block(torch.nn.Module):
    def __init__(self, mlp: mpu.ColumnParallelLinear, hidden, heads, length):
        super().__init__()
        self.mlp = mlp
        self.qkv = torch.nn.Linear(hidden, 3 * hidden)
        self.heads = heads
        self.alibi = self.build_alibi(heads, length)

    @staticmethod
    def build_alibi(heads, length):
        slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
        return slopes.view(-1, 1, 1) * torch.arange(length).view(1, 1, -1)

    def forward(self, scores):
        return scores + self.alibi
