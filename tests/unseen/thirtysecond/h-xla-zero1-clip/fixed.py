"""ZeRO-1 optimizer: each ordinal steps on its shard of every parameter.
pytorch/xla #4796, "ZeRO-1 grad clipping".
"""
import torch
import torch_xla.core.xla_model as xm


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_class, max_norm=1.0, cc_op_groups=None, pin_layout=True, **defaults):
        self.params = list(params)
        super().__init__(self.params, defaults)
        self.cc_op_groups, self.pin_layout, self.max_norm = cc_op_groups, pin_layout, max_norm
        self.world_size = len(cc_op_groups[0]) if cc_op_groups else xm.xrt_world_size()
        self.rank = xm.get_ordinal() % self.world_size
        self.sharded_params = [torch.nn.Parameter(self._shard(p.data)) for p in self.params]
        self.base_optimizer = optimizer_class(self.sharded_params, **defaults)

    def _shard(self, tensor):
        return tensor.chunk(self.world_size, dim=0)[self.rank].clone()

    @torch.no_grad()
    def _clip_grad_norm(self):
        grads = [p.grad for p in self.sharded_params if p.grad is not None]
        total_norm = torch.stack([g.float().pow(2).sum() for g in grads]).sum()
        total_norm = xm.all_reduce(
            xm.REDUCE_SUM, total_norm, groups=self.cc_op_groups, pin_layout=self.pin_layout
        )
        total_norm = total_norm.sqrt()
        coeff = torch.clamp(self.max_norm / (total_norm + 1e-6), max=1.0)
        for g in grads:
            g.mul_(coeff.to(g.dtype))

    @torch.no_grad()
    def step(self, closure=None):
        for param, shard in zip(self.params, self.sharded_params):
            if param.grad is not None:
                shard.grad = xm.reduce_scatter(
                    xm.REDUCE_SUM, param.grad, scale=1.0 / self.world_size, scatter_dim=0,
                    shard_count=self.world_size, groups=self.cc_op_groups, pin_layout=self.pin_layout,
                )
        self._clip_grad_norm()
        self.base_optimizer.step()
        for param, shard in zip(self.params, self.sharded_params):
            full = xm.all_gather(shard.data, dim=0, groups=self.cc_op_groups, pin_layout=self.pin_layout)
            param.data.copy_(full)
