"""ZeRO-2 style optimizer step: asynchronous reduce-scatter of gradient buckets, then clipping by global norm."""
import torch
import torch.distributed as dist


class ShardedOptimizer:
    def __init__(self, buckets, make_optimizer, group, max_norm):
        self.buckets, self.group, self.max_norm = buckets, group, max_norm
        n, r = group.size(), group.rank()
        self.shards = [torch.nn.Parameter(b.flat_param.chunk(n)[r].float()) for b in buckets]
        self.inner = make_optimizer(self.shards)

    @torch.no_grad()
    def step(self):
        works, grads = [], []
        for b in self.buckets:
            out = torch.empty(
                b.flat_grad.numel() // self.group.size(), dtype=b.flat_grad.dtype, device=b.flat_grad.device
            )
            works.append(
                dist.reduce_scatter_tensor(
                    out, b.flat_grad, op=dist.ReduceOp.AVG, group=self.group, async_op=True
                )
            )
            grads.append(out)
        for work in works:
            work.wait()
        sq = torch.stack([g.float().square().sum() for g in grads]).sum()
        dist.all_reduce(sq, group=self.group)
        clip = (self.max_norm / (sq.sqrt() + 1e-6)).clamp(max=1.0)
        for p, g in zip(self.shards, grads):
            p.grad = g.float() * clip
        self.inner.step()
        for b, p in zip(self.buckets, self.shards):
            dist.all_gather_into_tensor(b.flat_param, p.data.to(b.flat_param.dtype), group=self.group)
            b.flat_grad.zero_()
        return sq.sqrt()
