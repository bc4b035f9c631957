import torch
import torch.distributed as dist


class Zero:
    def __init__(self, p, opt, group):
        self.p, self.opt, self.group = p, opt, group

    def grad_norm(self, shard):
        sq = shard.float().square().sum()
        dist.all_reduce(sq, group=self.group)
        return sq.sqrt().item()

    def step(self, flat):
        shard = torch.empty_like(self.p)
        dist.reduce_scatter_tensor(shard, flat, group=self.group)
        norm = self.grad_norm(shard)
        if not torch.isfinite(torch.tensor(norm)):
            return None
        self.p.grad = shard
        self.opt.step()
        return norm
