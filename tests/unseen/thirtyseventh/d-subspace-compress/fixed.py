# thread: none (from memory of random-projection gradient compression)
"""Gradient exchange inside a random subspace that changes every iteration."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class SubspaceState:
    def __init__(self, rank, seed, start_iteration):
        self.rank, self.seed, self.start_iteration = rank, seed, start_iteration
        self.iteration = 0
        self.errors = {}

    def basis(self, index, size, device):
        """Orthonormal columns, drawn anew for this parameter in this iteration."""
        generator = torch.Generator(device="cpu")
        generator.manual_seed(self.seed + 100003 * self.iteration + index)
        q = torch.randn(size, self.rank, generator=generator)
        return torch.linalg.qr(q).Q.to(device)


def compress(state, index, p, world):
    """Replaces p.grad by the projection of the workers' mean; the rest is kept for later."""
    matrix = p.grad.reshape(p.shape[0], -1)
    if index in state.errors:
        matrix = matrix + state.errors[index]
    q = state.basis(index, matrix.shape[1], matrix.device)
    coefficients = matrix @ q
    state.errors[index] = matrix - coefficients @ q.t()
    coefficients.div_(world)
    dist.all_reduce(coefficients)
    p.grad.copy_((coefficients @ q.t()).view_as(p))


def exact(p, world):
    p.grad.div_(world)
    dist.all_reduce(p.grad)


@torch.no_grad()
def exchange(params, state):
    world = dist.get_world_size()
    for index, p in enumerate(params):
        small = p.dim() < 2 or p[0].numel() <= 2 * state.rank
        if small or state.iteration < state.start_iteration:
            exact(p, world)
        else:
            compress(state, index, p, world)
    state.iteration += 1


def seed_worker(seed):
    """Augmentation and dropout differ between the workers."""
    torch.manual_seed(seed + dist.get_rank())


def train(build, loader, cfg, device):
    torch.manual_seed(cfg.seed)
    model = build().to(device)
    seed_worker(cfg.seed)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=cfg.lr, momentum=0.9)
    state = SubspaceState(cfg.rank, cfg.seed, cfg.start_iteration)
    for epoch in range(cfg.epochs):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            F.cross_entropy(model(x.to(device)), y.to(device)).backward()
            exchange(params, state)
            optimizer.step()
            optimizer.zero_grad()
    return model
