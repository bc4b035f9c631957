"""Blocked Shampoo whose block updates are divided over the data-parallel ranks."""
import torch
import torch.distributed as dist
from torch.optim import Optimizer


def matrix_inverse_root(a, root, epsilon):
    eye = torch.eye(a.size(0), dtype=a.dtype, device=a.device)
    values, vectors = torch.linalg.eigh(a + epsilon * eye)
    return (vectors * values.clamp(min=epsilon).pow(-1.0 / root)) @ vectors.T


class DDPDistributor:
    """Assigns each parameter to one rank and gathers the updates of all ranks."""

    def __init__(self, params, group=None):
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        loads = [0] * self.size
        self.owner = {}
        for p in sorted(params, key=lambda p: -p.numel()):
            rank = loads.index(min(loads))
            self.owner[p] = rank
            loads[rank] += p.numel()
        self.params = list(params)
        self.capacity = max(loads)
        device = self.params[0].device
        self.local = torch.zeros(self.capacity, device=device)
        self.gathered = torch.zeros(self.capacity * self.size, device=device)

    def owned(self):
        return [p for p in self.params if self.owner[p] == self.rank]

    def views(self, buffer, rank):
        offset = 0
        for p in self.params:
            if self.owner[p] == rank:
                yield p, buffer[offset : offset + p.numel()].view_as(p)
                offset += p.numel()

    @torch.no_grad()
    def update_params(self):
        dist.all_gather_into_tensor(self.gathered, self.local, group=self.group)
        for rank, chunk in enumerate(self.gathered.chunk(self.size)):
            for p, update in self.views(chunk, rank):
                p.add_(update)


class DistributedShampoo(Optimizer):
    def __init__(self, params, lr=1e-3, beta2=0.999, epsilon=1e-8, precondition_frequency=20):
        defaults = dict(lr=lr, beta2=beta2, epsilon=epsilon)
        super().__init__(params, defaults)
        self.frequency = precondition_frequency
        self.distributors = [DDPDistributor(g["params"]) for g in self.param_groups]
        self.steps = 0

    def _update(self, p, group):
        state = self.state[p]
        grad = p.grad.view(p.size(0), -1).float()
        if not state:
            state["left"] = torch.zeros(grad.size(0), grad.size(0), device=p.device)
            state["right"] = torch.zeros(grad.size(1), grad.size(1), device=p.device)
        state["left"].lerp_(grad @ grad.T, 1 - group["beta2"])
        state["right"].lerp_(grad.T @ grad, 1 - group["beta2"])
        if self.steps % self.frequency == 1 or "left_root" not in state:
            state["left_root"] = matrix_inverse_root(state["left"], 4, group["epsilon"])
            state["right_root"] = matrix_inverse_root(state["right"], 4, group["epsilon"])
        update = state["left_root"] @ grad @ state["right_root"]
        return update.view_as(p).mul_(-group["lr"])

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        for group, distributor in zip(self.param_groups, self.distributors):
            with_grad = [p for p in distributor.owned() if p.grad is not None]
            distributor.local.zero_()
            targets = dict(distributor.views(distributor.local, distributor.rank))
            for p in with_grad:
                targets[p].copy_(self._update(p, group))
            distributor.update_params()
