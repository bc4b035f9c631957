import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import RowParallelLinear


class Lora(torch.nn.Module):
    def __init__(self, config, lora_a: RowParallelLinear, rank):
        super().__init__()
        self.lora_a = lora_a
        self.lora_b = torch.nn.Linear(rank, config.hidden_size, bias=False)
        if config.sequence_parallel:
            self.lora_b.weight.register_hook(self._sum)

    @staticmethod
    def _sum(grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=parallel_state.get_tensor_model_parallel_group())
        return grad

    def forward(self, x):
        mid, _ = self.lora_a(x)  # [s/tp, b, r] with sequence parallelism
        return self.lora_b(mid)
