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


def finish(model, config):
    if config.sequence_parallel:
        for name, p in model.named_parameters():
            if name.endswith("lora_b.weight"):
                dist.all_reduce(p.grad, group=ps.get_tensor_model_parallel_group())
