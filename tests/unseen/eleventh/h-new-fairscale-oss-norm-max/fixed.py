"""Optimizer state sharding: clip the gradients whose states are spread over the ranks."""
import torch
import torch.distributed as dist
from torch.optim import Optimizer


class OSS(Optimizer):
    def __init__(self, params, optim, group=None, **defaults):
        super().__init__(params, defaults)
        self.group = group if group is not None else dist.group.WORLD
        self.rank, self.world_size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.optim = optim(self.local_params(), **defaults)

    def local_params(self):
        """The slice of the parameters that this rank owns."""
        params = [p for group in self.param_groups for p in group["params"]]
        return params[self.rank::self.world_size]

    def clip_grad_norm(self, max_norm, norm_type=2.0):
        local_norms = [torch.norm(p.grad.detach(), norm_type) for p in self.local_params()]
        local_norm = torch.norm(torch.stack(local_norms), norm_type)

        # sum of the p-th powers over all shards
        total_norm = local_norm ** norm_type
        dist.all_reduce(total_norm, group=self.group)
        total_norm = total_norm ** (1.0 / norm_type)

        clip_coef = max_norm / (total_norm + 1e-6)
        if clip_coef < 1:
            for p in self.local_params():
                p.grad.detach().mul_(clip_coef)
        return total_norm
