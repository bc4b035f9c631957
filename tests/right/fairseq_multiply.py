"""fairseq: DDP averages summed losses, `multiply_grads` turns the mean into one over all tokens."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class FairOptimizer:
    def __init__(self, params, lr):
        self.params = list(params)
        self.inner = torch.optim.Adam(self.params, lr=lr)

    def multiply_grads(self, c):
        for p in self.params:
            if p.grad is not None:
                p.grad.data.mul_(c)

    def clip_grad_norm(self, largest):
        return torch.nn.utils.clip_grad_norm_(self.params, largest)

    def step(self):
        self.inner.step()

    def zero_grad(self):
        self.inner.zero_grad()


class Trainer:
    def __init__(self, net, lr=5e-4, clip=1.0):
        self.model = DistributedDataParallel(net)
        self.optimizer = FairOptimizer(self.model.parameters(), lr)
        self.clip = clip
        self.world = dist.get_world_size()

    def criterion(self, sample):
        logits = self.model(sample["net_input"])
        loss = F.cross_entropy(logits.flatten(0, 1), sample["target"].flatten(), ignore_index=1, reduction="sum")
        return loss, (sample["target"] != 1).sum(), {"loss": loss.detach()}

    def train_step(self, samples):
        self.optimizer.zero_grad()
        sample_size = torch.zeros((), device="cuda")
        logged = torch.zeros((), device="cuda")
        for i, sample in enumerate(samples):
            last = i == len(samples) - 1
            self.model.require_backward_grad_sync = last
            loss, n, out = self.criterion(sample)
            loss.backward()
            sample_size += n
            logged += out["loss"]
        stats = torch.stack([sample_size, logged])
        dist.all_reduce(stats)
        sample_size, logged = stats.unbind()
        # DDP divided by the number of workers
        self.optimizer.multiply_grads(self.world / sample_size)
        norm = self.optimizer.clip_grad_norm(self.clip)
        self.optimizer.step()
        return (logged / sample_size).item(), norm
