"""Distributed preconditioned optimizer: every rank updates its own parameters, then all gather.

Source: facebookresearch/optimizers PR #149.
"""
import torch
import torch.distributed as dist


class DistributedShampoo(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, beta=0.9, group=None):
        super().__init__(params, dict(lr=lr, beta=beta, step=0))
        self.dist_group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        for g in self.param_groups:
            g["owned"] = g["params"][self.rank :: self.world]
            g["numel"] = max(sum(p.numel() for p in g["params"][r :: self.world]) for r in range(self.world))
            g["momentum"] = {p: torch.zeros_like(p) for p in g["owned"]}

    @torch.no_grad()
    def update_params(self, g, directions):
        send = g["params"][0].new_zeros(g["numel"])
        flat = [(-g["lr"] * directions[p] if p in directions else torch.zeros_like(p)).view(-1) for p in g["owned"]]
        if flat:
            flat = torch.cat(flat)
            send[: flat.numel()] = flat
        recv = send.new_empty(self.world * g["numel"])
        dist.all_gather_into_tensor(recv, send, group=self.dist_group)
        for r, chunk in enumerate(recv.chunk(self.world)):
            offset = 0
            for p in g["params"][r :: self.world]:
                p.add_(chunk[offset : offset + p.numel()].view_as(p))
                offset += p.numel()

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            owned = [p for p in g["owned"] if p.grad is not None]
            if not owned:
                continue  # BUG
            g["step"] += 1
            momentum = [g["momentum"][p] for p in owned]
            torch._foreach_mul_(momentum, g["beta"])
            torch._foreach_add_(momentum, [p.grad for p in owned])
            self.update_params(g, dict(zip(owned, momentum)))
