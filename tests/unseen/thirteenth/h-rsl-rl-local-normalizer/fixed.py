"""Running observation normalisation of a policy trained on several GPUs.

Source: leggedrobotics/rsl_rl PR #226.
"""
import torch
import torch.distributed as dist
from torch import nn


class EmpiricalNormalization(nn.Module):
    def __init__(self, shape, eps=1e-2):
        super().__init__()
        self.eps = eps
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        return (x - self.mean) / (self.var.sqrt() + self.eps)

    @torch.no_grad()
    def update(self, x):
        d = x.shape[-1]
        stats = torch.cat([x.sum(0), x.square().sum(0), x.new_tensor([x.shape[0]])])
        dist.all_reduce(stats, op=dist.ReduceOp.SUM)
        sum_x, sum_sq, count_x = stats.split([d, d, 1])
        mean_x = sum_x / count_x
        var_x = sum_sq / count_x - mean_x.square()
        self.count += count_x.squeeze(0)
        rate = count_x / self.count
        delta = mean_x - self.mean
        self.mean += rate * delta
        self.var += rate * (var_x - self.var + delta * (mean_x - self.mean))


class PPO:
    def __init__(self, policy, normalizer, optimizer):
        self.policy, self.normalizer, self.optimizer = policy, normalizer, optimizer

    def reduce_parameters(self):
        grads = [p.grad.view(-1) for p in self.policy.parameters() if p.grad is not None]
        flat = torch.cat(grads)
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        flat /= dist.get_world_size()
        for g, r in zip(grads, flat.split([g.numel() for g in grads])):
            g.copy_(r)

    def update(self, obs, loss_fn):
        self.normalizer.update(obs)
        loss = loss_fn(self.policy(self.normalizer(obs)))
        self.optimizer.zero_grad()
        loss.backward()
        self.reduce_parameters()
        self.optimizer.step()
