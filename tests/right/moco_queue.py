"""MoCo: keys of all ranks go into the queue without gradient, the key encoder is an average of the other."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


@torch.no_grad()
def concat_all_gather(x):
    parts = [torch.ones_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x, async_op=False)
    return torch.cat(parts, dim=0)


class MoCo(nn.Module):
    def __init__(self, make, dim=128, size=65536, m=0.999, t=0.07):
        super().__init__()
        self.m, self.t, self.size = m, t, size
        self.q, self.k = make(dim), make(dim)
        for a, b in zip(self.q.parameters(), self.k.parameters()):
            b.data.copy_(a.data)
            b.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        for a, b in zip(self.q.parameters(), self.k.parameters()):
            b.data = b.data * self.m + a.data * (1.0 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        keys = concat_all_gather(keys)
        n, at = keys.shape[0], int(self.ptr)
        self.queue[:, at : at + n] = keys.T
        self.ptr[0] = (at + n) % self.size

    @torch.no_grad()
    def shuffle(self, x):
        n = x.shape[0]
        x = concat_all_gather(x)
        order = torch.randperm(x.shape[0]).cuda()
        dist.broadcast(order, src=0)
        back = torch.argsort(order)
        mine = order.view(x.shape[0] // n, -1)[dist.get_rank()]
        return x[mine], back

    @torch.no_grad()
    def unshuffle(self, x, back):
        n = x.shape[0]
        x = concat_all_gather(x)
        mine = back.view(x.shape[0] // n, -1)[dist.get_rank()]
        return x[mine]

    def forward(self, view_q, view_k):
        q = F.normalize(self.q(view_q), dim=1)
        with torch.no_grad():
            self.follow()
            view_k, back = self.shuffle(view_k)
            k = self.unshuffle(F.normalize(self.k(view_k), dim=1), back)
        pos = torch.einsum("nc,nc->n", q, k)[:, None]
        neg = q @ self.queue.clone().detach()
        logits = torch.cat([pos, neg], dim=1) / self.t
        self.enqueue(k)
        return logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device)
