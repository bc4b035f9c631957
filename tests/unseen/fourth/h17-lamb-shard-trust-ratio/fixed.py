"""LAMB on flat shards: the trust ratio needs the norm of the whole parameter."""
import torch
import torch.distributed as dist


class ShardedLamb:
    def __init__(self, params, group, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        self.params, self.group = list(params), group
        self.world_size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.state = {}
        for p in self.params:
            n = p.numel() // self.world_size
            shard = p.data.view(-1)[self.rank * n : (self.rank + 1) * n].clone()
            self.state[p] = {"shard": shard, "m": torch.zeros_like(shard), "v": torch.zeros_like(shard)}

    def _grad_shard(self, p):
        out = p.grad.new_empty(p.numel() // self.world_size)
        dist.reduce_scatter_tensor(out, p.grad.view(-1), op=dist.ReduceOp.AVG, group=self.group)
        return out

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for p in self.params:
            if p.grad is None:
                continue
            st = self.state[p]
            g = self._grad_shard(p)
            st["m"].mul_(b1).add_(g, alpha=1 - b1)
            st["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
            update = st["m"] / (st["v"].sqrt() + self.eps) + self.weight_decay * st["shard"]
            squares = torch.stack([st["shard"].pow(2).sum(), update.pow(2).sum()])
            dist.all_reduce(squares, group=self.group)
            w_norm, u_norm = squares.sqrt()
            trust = torch.where((w_norm > 0) & (u_norm > 0), w_norm / u_norm, torch.ones_like(w_norm))
            st["shard"].add_(update * trust, alpha=-self.lr)
            dist.all_gather_into_tensor(p.data.view(-1), st["shard"], group=self.group)
            p.grad = None
