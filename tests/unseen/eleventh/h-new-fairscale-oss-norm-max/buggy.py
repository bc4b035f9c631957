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

        # sync all the norms from all ranks
        norms = [torch.zeros_like(local_norm) for _ in range(self.world_size)]
        dist.all_gather(norms, local_norm, group=self.group)
        total_norm = torch.max(torch.stack(norms))  # BUG: the norm of the largest shard, not of all of them

        clip_coef = max_norm / (total_norm + 1e-6)
        if clip_coef < 1:
            for p in self.local_params():
                p.grad.detach().mul_(clip_coef)
        return total_norm
