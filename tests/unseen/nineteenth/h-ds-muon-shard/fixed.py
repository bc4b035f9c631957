"""Muon for tensor-parallel weights. deepspeedai/DeepSpeed, issue #8437 (AutoTP and Muon)."""
import torch
import torch.distributed as dist


def zeropower_via_newtonschulz5(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    transposed = x.size(0) > x.size(1)
    if transposed:
        x = x.t()
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.t() if transposed else x


class Muon(torch.optim.Optimizer):
    """Parameters carry tensor_model_parallel and partition_dim, as AutoTP sets them."""

    def __init__(self, params, tp_group, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))
        self.tp_group = tp_group

    def _gather(self, t, dim):
        parts = [torch.empty_like(t) for _ in range(dist.get_world_size(self.tp_group))]
        dist.all_gather(parts, t, group=self.tp_group)
        return torch.cat(parts, dim=dim)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "buf" not in state:
                    state["buf"] = torch.zeros_like(p.grad)
                state["buf"].lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(state["buf"], group["momentum"])
                sharded = getattr(p, "tensor_model_parallel", False)
                if sharded:
                    update = self._gather(update.contiguous(), p.partition_dim)
                update = zeropower_via_newtonschulz5(update)
                scale = max(1.0, update.size(0) / update.size(1)) ** 0.5
                if sharded:
                    world, rank = dist.get_world_size(self.tp_group), dist.get_rank(self.tp_group)
                    update = update.chunk(world, dim=p.partition_dim)[rank]
                p.add_(update.to(p.dtype), alpha=-group["lr"] * scale)
