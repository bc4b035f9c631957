"""LoRA behind a row-parallel layer: its whole factor is marked, or there is no sequence parallelism."""
import torch
from megatron.core.tensor_parallel import RowParallelLinear


class Marked(torch.nn.Module):
    def __init__(self, config, lora_a: RowParallelLinear, rank):
        super().__init__()
        self.lora_a = lora_a
        self.lora_b = torch.nn.Linear(rank, config.hidden_size, bias=False)
        for param in self.lora_b.parameters():
            param.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        mid, _ = self.lora_a(x)  # [s/tp, b, r] with sequence parallelism
        return self.lora_b(mid)


class Plain(torch.nn.Module):
    def __init__(self, config, lora_a: RowParallelLinear, rank):
        super().__init__()
        self.lora_a = lora_a
        self.lora_b = torch.nn.Linear(rank, config.hidden_size, bias=False)

    def forward(self, x):
        mid, _ = self.lora_a(x)  # summed over the ranks, the same on each
        return self.lora_b(mid)
