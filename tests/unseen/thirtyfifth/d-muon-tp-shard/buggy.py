"""Muon update of tensor-parallel weight matrices."""
# thread: deepspeedai/DeepSpeed#8437
import torch
import torch.distributed as dist


def newton_schulz(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16() / (g.norm() + 1e-7)
    transposed = x.size(0) > x.size(1)
    if transposed:
        x = x.t()
    for _ in range(steps):
        s = x @ x.t()
        x = a * x + (b * s + c * s @ s) @ x
    return (x.t() if transposed else x).to(g.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum, tp_group):
        super().__init__(params, dict(lr=lr, momentum=momentum))
        self.tp_group = tp_group

    def orthogonalize(self, update, dim):
        # update: shard of the matrix along dim; the result must not depend on the number of shards
        return newton_schulz(update)  # BUG: orthogonalises the shard, not the matrix

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                # p.grad has been averaged over the data-parallel ranks
                buf = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(p.grad)
                update = p.grad.add(buf, alpha=group["momentum"])
                p.add_(self.orthogonalize(update, p.partition_dim), alpha=-group["lr"])
