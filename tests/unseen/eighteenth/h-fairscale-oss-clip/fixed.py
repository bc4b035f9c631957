"""Clip the gradients of an optimizer whose parameters are sharded over the ranks.

Source: facebookresearch/fairscale, pull request #167 (review). Each rank holds the reduced
gradients of its own shard only. The largest of the local norms is the norm of the whole for
p = inf, but not for p = 2.
"""
import torch
import torch.distributed as dist


class OSS:
    def __init__(self, params, optim_cls, group=None, **kwargs):
        self.group = group
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)
        self.params = list(params)
        self.owner = self._partition()
        self.local = [p for p in self.params if self.owner[p] == self.rank]
        self.optim = optim_cls(self.local, **kwargs)

    def _partition(self):
        owner, sizes = {}, [0] * self.world_size
        for p in self.params:
            rank = sizes.index(min(sizes))
            owner[p] = rank
            sizes[rank] += p.numel()
        return owner

    def _global_rank(self, rank):
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def reduce_grads(self):
        for p in self.params:
            p.grad.div_(self.world_size)
            dist.reduce(p.grad, self._global_rank(self.owner[p]), group=self.group)

    def clip_grad_norm(self, max_norm, norm_type=2.0):
        local_norm = torch.norm(
            torch.stack([torch.norm(p.grad.detach(), norm_type) for p in self.local]), norm_type
        )
        norms = [torch.zeros_like(local_norm) for _ in range(self.world_size)]
        dist.all_gather(norms, local_norm, group=self.group)
        total_norm = torch.norm(torch.stack(norms), norm_type)
        clip_coef = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
        for p in self.local:
            p.grad.detach().mul_(clip_coef)
        return total_norm

    def step(self):
        self.optim.step()
        for p in self.params:
            dist.broadcast(p.data, self._global_rank(self.owner[p]), group=self.group)
