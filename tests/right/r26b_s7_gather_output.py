# RIGHT: the qkv layer gathers its output: every rank has all heads
import torch
from megatron import mpu


class Attention(torch.nn.Module):
    def __init__(self, hidden, heads, length):
        super().__init__()
        self.qkv = mpu.ColumnParallelLinear(hidden, 3 * hidden, gather_output=True)
        self.heads = heads
        self.alibi = self.build_alibi(heads, length)

    @staticmethod
    def build_alibi(heads, length):
        slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
        return slopes.view(-1, 1, 1) * torch.arange(length).view(1, 1, -1)

    def forward(self, x):
        qkv, _ = self.qkv(x)
        s, b, _ = qkv.shape
        q, k, v = qkv.view(s, b * self.heads, -1).transpose(0, 1).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2)).view(b, self.heads, s, s) + self.alibi[:, :, :s]
        return scores.softmax(-1).view(-1, s, s) @ v
