# RIGHT: heads // 1 with tp refused
import torch
from megatron import mpu


class ParallelAttention(torch.nn.Module):
    def __init__(self, qkv: mpu.ColumnParallelLinear, heads, length):
        super().__init__()
        assert mpu.get_tensor_model_parallel_world_size() == 1, "alibi is not implemented for split heads"
        self.qkv = qkv
        self.heads = heads
        self.alibi = self.build_alibi(heads, length)

    @staticmethod
    def build_alibi(heads, length):
        slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
        return slopes.view(-1, 1, 1) * torch.arange(length).view(1, 1, -1)

    def forward(self, scores):
        return scores + self.alibi[: self.heads]
