"""Sharded optimizer: clipping over the shards of the state (fairscale OSS style)."""
import torch
import torch.distributed as dist


class OSS(torch.optim.Optimizer):
    def __init__(self, params, optim=torch.optim.SGD, group=None, **default):
        self.in_super_constructor = True
        super().__init__(params, default)
        self.in_super_constructor = False
        self.group = group if group is not None else dist.group.WORLD
        self.world_size = dist.get_world_size(self.group)
        self.rank = dist.get_rank(self.group)
        self.optim = optim(self.partition_parameters()[self.rank], **default)

    def partition_parameters(self):
        buckets = [[] for _ in range(self.world_size)]
        sizes = [0] * self.world_size
        for group in self.param_groups:
            for param in group["params"]:
                rank = sizes.index(min(sizes))
                buckets[rank].append(param)
                sizes[rank] += param.numel()
        return buckets

    def clip_grad_norm(self, max_norm, norm_type=2.0):
        max_norm, norm_type = float(max_norm), float(norm_type)
        local_params = self.partition_parameters()[self.rank]
        with torch.no_grad():
            local_norm = torch.stack(
                [torch.norm(p.grad.detach(), norm_type) for p in local_params if p.grad is not None]
            ).norm(norm_type)
            total_norm = local_norm
            dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=self.group)  # BUG
            clip_coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.detach().mul_(clip_coef)
        return total_norm

    def step(self, closure=None):
        loss = self.optim.step()
        for rank, params in enumerate(self.partition_parameters()):
            for p in params:
                dist.broadcast(p.data, src=rank, group=self.group)
        return loss
