"""The rank leaves in the last round, after the last collective."""
import torch
import torch.distributed as dist


class Runner:
    def __init__(self, model, epochs):
        self.model, self.epochs, self.rank = model, epochs, dist.get_rank()

    def run(self, loader):
        for epoch in range(self.epochs):
            self.train(loader)
            dist.barrier()
            if epoch < self.epochs - 1:
                continue
            if self.rank != 0:
                return
            torch.save(self.model.state_dict(), "final.pt")

    def train(self, loader):
        for b in loader:
            self.model(b)
