# RIGHT: alibi as a DTensor sharded over heads
import torch
from megatron import mpu
from torch.distributed.tensor import Shard, distribute_tensor


class ParallelAttention(torch.nn.Module):
    def __init__(self, qkv: mpu.ColumnParallelLinear, heads, length, mesh):
        super().__init__()
        self.qkv = qkv
        self.local_heads = heads // mpu.get_tensor_model_parallel_world_size()
        self.alibi = distribute_tensor(self.build_alibi(heads, length), mesh["tp"], [Shard(0)]).to_local()

    @staticmethod
    def build_alibi(heads, length):
        slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
        return slopes.view(-1, 1, 1) * torch.arange(length).view(1, 1, -1)

    def forward(self, scores):
        return scores + self.alibi
