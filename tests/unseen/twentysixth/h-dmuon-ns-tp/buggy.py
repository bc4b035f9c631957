# dmuon 371d319
"""Muon step on owned parameters; with tensor parallelism the owner holds one tp shard."""
import torch
import torch.distributed as dist

COEFFS = (3.4445, -4.7750, 2.0315)


def newton_schulz(x, steps, tp_group=None):
    """Orthogonalise x [m, n]; with tp_group x is a column block of the matrix."""
    a, b, c = COEFFS
    x = x.float()
    sq = x.pow(2).sum()
    if tp_group is not None:
        dist.all_reduce(sq, group=tp_group)
    x = x / (sq.sqrt() + 1e-7)
    for _ in range(steps):
        gram = x @ x.t()
        if tp_group is not None:
            dist.all_reduce(gram, group=tp_group)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon:
    def __init__(self, dedicated_params, lr=0.02, momentum=0.95, ns_steps=5, ns_backend="compiled"):
        self.params, self.lr, self.momentum = dedicated_params, lr, momentum
        self._ns_steps, self._ns_backend = ns_steps, ns_backend
        self.buffers = {}

    @torch.no_grad()
    def step(self):
        for dp in self.params:  # owned_data, reduced_grad: this tp rank's shard along dp.shard_dim
            buf = self.buffers.setdefault(id(dp), torch.zeros_like(dp.reduced_grad))
            buf.mul_(self.momentum).add_(dp.reduced_grad)
            if self._ns_backend == "gram" and dp.tp_group is not None:  # BUG: the default orthogonalises each shard alone
                x = buf if dp.shard_dim == 1 else buf.t()
                update = newton_schulz(x, self._ns_steps, dp.tp_group)
                update = update if dp.shard_dim == 1 else update.t()
            else:
                update = newton_schulz(buf, self._ns_steps)
            scale = 0.2 * max(dp.global_shape) ** 0.5
            dp.owned_data.add_(update.to(dp.owned_data.dtype), alpha=-self.lr * scale)
