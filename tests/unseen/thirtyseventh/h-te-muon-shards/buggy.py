# thread: https://github.com/NVIDIA/TransformerEngine/pull/2920
"""Muon for two-dimensional weights split over the tensor-parallel group."""
import torch
import torch.distributed as dist

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def newton_schulz(x, steps, group=None, eps=1e-7):
    """Orthogonalises the matrix whose columns are spread over the group."""
    a, b, c = COEFFICIENTS
    x = x / (x.norm() + eps)  # BUG
    for _ in range(steps):
        gram = x @ x.T
        if group is not None:
            dist.all_reduce(gram, group=group)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def orthogonalize(update, partition_dim, steps, group):
    """partition_dim is None for a weight that is whole on every rank."""
    if partition_dim is None:
        if update.size(0) > update.size(1):
            return newton_schulz(update.T, steps).T
        return newton_schulz(update, steps)
    if partition_dim == 0:
        return newton_schulz(update.T.contiguous(), steps, group).T
    return newton_schulz(update, steps, group)


def scale_factor(shape, partition_dim, group):
    rows, cols = shape
    if partition_dim == 0:
        rows *= dist.get_world_size(group)
    elif partition_dim == 1:
        cols *= dist.get_world_size(group)
    return max(1.0, rows / cols) ** 0.5


class Muon(torch.optim.Optimizer):
    def __init__(self, params, tp_group, lr=0.02, momentum=0.95, weight_decay=0.0, steps=5):
        defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, steps=steps)
        super().__init__(params, defaults)
        self.tp_group = tp_group

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for cfg in self.param_groups:
            for p in cfg["params"]:
                if p.grad is None:
                    continue
                grad = p.grad.float()
                state = self.state[p]
                if "buffer" not in state:
                    state["buffer"] = torch.zeros_like(grad)
                state["buffer"].lerp_(grad, 1 - cfg["momentum"])
                update = grad.lerp(state["buffer"], cfg["momentum"])
                dim = getattr(p, "partition_dim", None)
                update = orthogonalize(update, dim, cfg["steps"], self.tp_group)
                scale = scale_factor(p.shape, dim, self.tp_group)
                p.mul_(1 - cfg["lr"] * cfg["weight_decay"])
                p.add_(update, alpha=-cfg["lr"] * scale)
        return loss


def build_optimizers(model, cfg, tp_group):
    matrices, others = [], []
    for name, p in model.named_parameters():
        hidden = p.dim() == 2 and "embed" not in name and "head" not in name
        (matrices if hidden else others).append(p)
    return [
        Muon(matrices, tp_group, lr=cfg.muon_lr),
        torch.optim.AdamW(others, lr=cfg.adam_lr),
    ]
