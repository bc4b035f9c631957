# RIGHT: shard helper from another module
import torch
from megatron import mpu
from .sharding import own_shard


class ParallelAttention(torch.nn.Module):
    def __init__(self, qkv: mpu.ColumnParallelLinear, heads, length):
        super().__init__()
        self.qkv = qkv
        self.local_heads = heads // mpu.get_tensor_model_parallel_world_size()
        self.alibi = own_shard(self.build_alibi(heads, length), dim=0)

    @staticmethod
    def build_alibi(heads, length):
        slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
        return slopes.view(-1, 1, 1) * torch.arange(length).view(1, 1, -1)

    def forward(self, scores):
        return scores + self.alibi
