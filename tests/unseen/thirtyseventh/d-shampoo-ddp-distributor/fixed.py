# thread: https://github.com/facebookresearch/optimizers/pull/149
"""Shampoo whose preconditioning work is divided over the data-parallel ranks."""
import torch
import torch.distributed as dist


def inverse_fourth_root(matrix, eps):
    values, vectors = torch.linalg.eigh(matrix.double())
    values = (values.clamp(min=0) + eps).pow(-0.25)
    return (vectors * values @ vectors.T).to(matrix.dtype)


class DDPDistributor:
    """Owns the flat buffer through which the search directions are exchanged."""

    def __init__(self, params, group):
        self.params, self.group = params, group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.owner = {}
        loads = [0] * self.world
        for i in sorted(range(len(params)), key=lambda i: (-params[i].numel(), i)):
            target = loads.index(min(loads))
            self.owner[i] = (target, loads[target])
            loads[target] += params[i].numel()
        self.span = max(loads)
        device = params[0].device
        self.local = torch.zeros(self.span, device=device)
        self.everything = torch.zeros(self.span * self.world, device=device)

    def owned(self):
        return [i for i, (rank, _) in self.owner.items() if rank == self.rank]

    def write(self, index, direction):
        _, offset = self.owner[index]
        self.local[offset : offset + direction.numel()].copy_(direction.flatten())

    def update_params(self, lr):
        dist.all_gather_into_tensor(self.everything, self.local, group=self.group)
        for i, p in enumerate(self.params):
            rank, offset = self.owner[i]
            start = rank * self.span + offset
            p.sub_(self.everything[start : start + p.numel()].view_as(p), alpha=lr)


class Shampoo(torch.optim.Optimizer):
    """Two-dimensional parameters only; gradients come in already averaged by DDP."""

    def __init__(self, params, lr=1e-3, beta=0.95, eps=1e-10, frequency=10, group=None):
        super().__init__(params, dict(lr=lr, beta=beta, eps=eps, frequency=frequency))
        self.distributors = [DDPDistributor(g["params"], group) for g in self.param_groups]
        self.steps = 0

    def direction(self, p, cfg):
        state = self.state[p]
        if not state:
            rows, cols = p.shape
            state["left"] = torch.zeros(rows, rows, device=p.device)
            state["right"] = torch.zeros(cols, cols, device=p.device)
            state["updates"] = 0
        grad = p.grad.float()
        state["left"].lerp_(grad @ grad.T, 1 - cfg["beta"])
        state["right"].lerp_(grad.T @ grad, 1 - cfg["beta"])
        if state["updates"] % cfg["frequency"] == 0:
            state["left_root"] = inverse_fourth_root(state["left"], cfg["eps"])
            state["right_root"] = inverse_fourth_root(state["right"], cfg["eps"])
        state["updates"] += 1
        return state["left_root"] @ grad @ state["right_root"]

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        self.steps += 1
        for cfg, distributor in zip(self.param_groups, self.distributors):
            active = [i for i in distributor.owned() if cfg["params"][i].grad is not None]
            distributor.local.zero_()
            for i in active:
                distributor.write(i, self.direction(cfg["params"][i], cfg))
            distributor.update_params(cfg["lr"])
        return loss
