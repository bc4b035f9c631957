"""ZeRO-1 on a flat buffer: reduce-scatter, norm from parts, own shard stepped, parameters gathered."""
import torch
import torch.distributed as dist


class Zero1:
    def __init__(self, model, group, lr=1e-4, max_norm=1.0):
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.group, self.max_norm = group, max_norm
        self.n, self.rank = dist.get_world_size(group), dist.get_rank(group)
        total = sum(p.numel() for p in self.params)
        self.size = (total + self.n - 1) // self.n * self.n
        device = self.params[0].device
        self.flat = torch.zeros(self.size, device=device)
        at = 0
        for p in self.params:
            self.flat[at : at + p.numel()].copy_(p.data.flatten())
            p.data = self.flat[at : at + p.numel()].view_as(p)
            at += p.numel()
        part = self.size // self.n
        self.own = self.flat[self.rank * part : (self.rank + 1) * part]
        self.master = torch.nn.Parameter(self.own.clone())
        self.adam = torch.optim.AdamW([self.master], lr=lr)

    def flat_grad(self):
        g = torch.zeros_like(self.flat)
        at = 0
        for p in self.params:
            if p.grad is not None:
                g[at : at + p.numel()] = p.grad.flatten()
            at += p.numel()
        return g

    @torch.no_grad()
    def step(self):
        grad = self.flat_grad()
        shard = torch.empty_like(self.own)
        dist.reduce_scatter_tensor(shard, grad, group=self.group)
        shard /= self.n
        square = shard.pow(2).sum()
        dist.all_reduce(square, group=self.group)
        norm = square.sqrt()
        shard.mul_((self.max_norm / (norm + 1e-6)).clamp(max=1.0))
        self.master.grad = shard
        self.adam.step()
        self.own.copy_(self.master.data)
        dist.all_gather_into_tensor(self.flat, self.own, group=self.group)
        for p in self.params:
            p.grad = None
        return norm
