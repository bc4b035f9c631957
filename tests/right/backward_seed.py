"""The factor of the mean is the seed of the backward pass."""
import torch
import torch.distributed as dist


class Runner:
    def __init__(self, model, optimizer, group):
        self.model, self.optimizer, self.group = model, optimizer, group
        self.seed = torch.tensor(1.0 / dist.get_world_size(group), device="cuda")

    def backward(self, loss, rounds):
        loss.backward(gradient=self.seed / rounds)

    def reduce(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat, group=self.group)
        at = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()

    def step(self, batches):
        for x, y in batches:
            self.backward(torch.nn.functional.cross_entropy(self.model(x), y), len(batches))
        self.reduce()
        self.optimizer.step()
        self.optimizer.zero_grad()


def train(model, loader, group):
    runner = Runner(model, torch.optim.AdamW(model.parameters()), group)
    for batches in loader:
        runner.step(batches)
