"""Shampoo whose blocks are distributed over the data-parallel ranks; the updates are gathered after each step."""
import torch
import torch.distributed as dist


class DistributedShampoo(torch.optim.Optimizer):
    def __init__(self, params, lr, preconditioner_fn, dist_group):
        super().__init__(params, {"lr": lr})
        self.preconditioner_fn, self.dist_group = preconditioner_fn, dist_group
        self.rank, self.world = dist.get_rank(dist_group), dist.get_world_size(dist_group)
        for group in self.param_groups:
            # one flat slot of the same size per rank; the blocks of a rank lie one after the other in its slot
            group["owned"] = group["params"][self.rank :: self.world]
            group["slot"] = max(sum(p.numel() for p in group["params"][r :: self.world]) for r in range(self.world))
            p0 = group["params"][0]
            group["local"] = torch.zeros(group["slot"], dtype=p0.dtype, device=p0.device)
            group["all"] = torch.zeros(group["slot"] * self.world, dtype=p0.dtype, device=p0.device)
            group["step"] = 0

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            with_grad = [p for p in group["owned"] if p.grad is not None]
            if not with_grad:
                continue  # BUG
            group["step"] += 1
            group["local"].zero_()
            offset = 0
            for p in group["owned"]:
                if p.grad is not None:
                    direction = self.preconditioner_fn(self.state[p], p.grad, group["step"])
                    group["local"][offset : offset + p.numel()].copy_(direction.flatten())
                offset += p.numel()
            self._update_params(group)

    def _update_params(self, group):
        dist.all_gather_into_tensor(group["all"], group["local"], group=self.dist_group)
        for r in range(self.world):
            offset = r * group["slot"]
            for p in group["params"][r :: self.world]:
                p.add_(group["all"][offset : offset + p.numel()].view_as(p), alpha=-group["lr"])
                offset += p.numel()
