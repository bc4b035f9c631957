"""Gradient norm of the distributed optimizer."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


def is_not_tp_duplicate(param):
    return (
        getattr(param, "tensor_model_parallel", False)
        or parallel_state.get_tensor_model_parallel_rank() == 0
    )


class DistributedOptimizer:
    def __init__(self, params):
        self.params = list(params)
        self.dp_group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        self.shards = {}

    def reduce_gradients(self):
        n = dist.get_world_size(self.dp_group)
        for p in self.params:
            full = p.main_grad.view(-1)  # padded to a multiple of n
            full.div_(n)
            shard = torch.empty(full.numel() // n, dtype=full.dtype, device=full.device)
            dist.reduce_scatter_tensor(shard, full, group=self.dp_group)
            self.shards[p] = shard

    def get_grad_norm(self):
        total = torch.zeros(1, dtype=torch.float32, device="cuda")
        for p, shard in self.shards.items():
            if is_not_tp_duplicate(p):
                total += torch.norm(shard.float()) ** 2
        dist.all_reduce(total, group=self.dp_group)
        dist.all_reduce(total, group=parallel_state.get_model_parallel_group())
        return total.sqrt().item()

    def clip(self, max_norm):
        coeff = max_norm / (self.get_grad_norm() + 1.0e-6)
        if coeff < 1.0:
            for shard in self.shards.values():
                shard.mul_(coeff)
