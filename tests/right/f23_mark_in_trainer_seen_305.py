import torch
import torch.distributed as dist
from megatron.core import parallel_state as ps
from megatron.core.tensor_parallel import RowParallelLinear


class LoraRow(torch.nn.Module):
    def __init__(self, config, lora_a: RowParallelLinear, rank):
        super().__init__()
        self.lora_a = lora_a
        self.lora_b = torch.nn.Linear(rank, config.hidden_size, bias=False)

    def forward(self, x):
        mid, _ = self.lora_a(x)  # [s/tp, b, r] with sequence parallelism
        return self.lora_b(mid)


def build(config, a, rank):
    layer = LoraRow(config, a, rank)
    if config.sequence_parallel:
        for p in layer.lora_b.parameters():
            p.sequence_parallel = True
    return layer
