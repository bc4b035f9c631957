"""DP-SGD: per-sample clipping and noise on each rank, then the sum over ranks (Opacus)."""
import torch
import torch.distributed as dist


class PrivateOptimizer:
    def __init__(self, optimizer, params, max_norm, noise, expected_batch):
        self.optimizer = optimizer
        self.params = list(params)
        self.max_norm = max_norm
        # each rank adds its share, so that the sum has the variance that is wanted
        self.noise = noise / dist.get_world_size() ** 0.5
        self.expected_batch = expected_batch  # of all ranks

    def clip_and_accumulate(self):
        norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in self.params], 1).norm(dim=1)
        factor = (self.max_norm / (norms + 1e-6)).clamp(max=1.0)
        for p in self.params:
            p.grad = torch.einsum("i,i...->...", factor, p.grad_sample)

    def add_noise(self):
        for p in self.params:
            p.grad += torch.randn_like(p.grad) * self.noise * self.max_norm

    def reduce_gradients(self):
        for p in self.params:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= self.expected_batch

    def step(self):
        self.clip_and_accumulate()
        self.add_noise()
        self.reduce_gradients()
        self.optimizer.step()
        for p in self.params:
            p.grad_sample = None

    def zero_grad(self):
        self.optimizer.zero_grad()


def train(model, loader, loss_fn, expected_batch):
    optimizer = PrivateOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), model.parameters(), 1.0, 1.1, expected_batch
    )
    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(model(x), y).sum().backward()  # hooks of the model fill p.grad_sample
        optimizer.step()
