import torch
from megatron.core.tensor_parallel import RowParallelLinear


class LoraRow(torch.nn.Module):
    def __init__(self, config, lora_a: RowParallelLinear, rank):
        super().__init__()
        self.lora_a = lora_a
        self.lora_b = torch.nn.Linear(rank, config.hidden_size, bias=False)
        for p in self.lora_b.parameters():
            p.requires_grad = False

    def forward(self, x):
        mid, _ = self.lora_a(x)  # [s/tp, b, r] with sequence parallelism
        return self.lora_b(mid)
