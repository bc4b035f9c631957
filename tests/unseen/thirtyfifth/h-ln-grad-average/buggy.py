"""LayerNorm gradient hooks for sequence parallelism."""
# thread: EleutherAI/gpt-neox#1259
import torch
import torch.distributed as dist
from megatron import mpu
from megatron.mpu.mappings import gather_from_sequence_parallel_region, reduce_scatter_to_sequence_parallel_region


class ParallelMLPBlock(torch.nn.Module):
    def __init__(self, hidden, ffn_local):
        super().__init__()
        self.input_layernorm = torch.nn.LayerNorm(hidden)
        self.up = torch.nn.Linear(hidden, ffn_local, bias=False)
        self.down = torch.nn.Linear(ffn_local, hidden, bias=False)

    def forward(self, x):
        # x: [seq / mp, batch, hidden]; the gather reduce-scatters (sums) in backward
        y = gather_from_sequence_parallel_region(self.input_layernorm(x))
        y = self.down(torch.nn.functional.gelu(self.up(y)))
        return x + reduce_scatter_to_sequence_parallel_region(y)


def reduce_layernorm_grad(grad):
    grad = grad.contiguous().clone()
    dist.all_reduce(grad, group=mpu.get_model_parallel_group())
    return grad / mpu.get_model_parallel_world_size()  # BUG: shards of the sequence add up


def attach_layernorm_hooks(model):
    # after deepspeed.initialize, so the engine's own hooks see the reduced gradient
    for name, p in model.named_parameters():
        if "layernorm" in name and mpu.get_model_parallel_world_size() > 1:
            p.register_hook(reduce_layernorm_grad)
