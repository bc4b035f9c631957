import torch
import torch.nn as nn
import torch.distributed as dist


class ShardedAdam:
    """ZeRO-1: flat fp32 master shard per rank; reduce-scatter the gradient, gather the parameters."""

    def __init__(self, params, lr):
        self.params = [p for p in params if p.requires_grad]
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        n = sum(p.numel() for p in self.params)
        self.pad = -n % self.world
        self.n = n
        flat = self._flatten([p.data for p in self.params])
        self.shard_size = flat.numel() // self.world
        self.master = nn.Parameter(flat.narrow(0, self.rank * self.shard_size, self.shard_size).float().clone())
        self.inner = torch.optim.Adam([self.master], lr=lr)

    def _flatten(self, ts):
        flat = torch.cat([t.reshape(-1) for t in ts])
        return torch.cat([flat, flat.new_zeros(self.pad)]) if self.pad else flat

    @torch.no_grad()
    def step(self):
        g = self._flatten([p.grad if p.grad is not None else torch.zeros_like(p) for p in self.params])
        shard = g.new_empty(self.shard_size)
        dist.reduce_scatter_tensor(shard, g, op=dist.ReduceOp.SUM)
        self.master.grad = shard.float() / self.world
        norm = self.master.grad.pow(2).sum()
        dist.all_reduce(norm)
        self.master.grad.mul_(torch.clamp(1.0 / (norm.sqrt() + 1e-6), max=1.0))
        self.inner.step()
        full = torch.empty_like(g)
        dist.all_gather_into_tensor(full, self.master.data.to(g.dtype))
        off = 0
        for p in self.params:
            p.data.copy_(full[off:off + p.numel()].view_as(p))
            off += p.numel()

    def zero_grad(self):
        for p in self.params:
            p.grad = None


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 300), nn.Tanh(), nn.Linear(300, 10)).cuda().bfloat16()
    opt = ShardedAdam(model.parameters(), 1e-3)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(10):
        x = torch.randn(8, 100, device="cuda", dtype=torch.bfloat16)
        y = torch.randint(0, 10, (8,), device="cuda")
        loss = nn.functional.cross_entropy(model(x).float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
