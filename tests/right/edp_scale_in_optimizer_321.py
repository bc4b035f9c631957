# Right: the optimizer's param group of experts has grad_scale 1/ep, applied to p.grad before the update.
import torch
import torch.distributed as dist


class GroupedScaler(torch.optim.AdamW):
    """Param groups carry `grad_scale`, applied before the update."""

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            s = g.get("grad_scale", 1.0)
            if s != 1.0:
                for p in g["params"]:
                    if p.grad is not None:
                        p.grad.mul_(s)
        return super().step(closure)


def build(model, lr, ep_size):
    dense = [p for n, p in model.named_parameters() if "experts" not in n]
    experts = [p for n, p in model.named_parameters() if "experts" in n]
    return GroupedScaler([{"params": dense, "grad_scale": 1.0}, {"params": experts, "grad_scale": 1.0 / ep_size}], lr=lr)


def average(model, dp_group, edp_group):
    for n, p in model.named_parameters():
        g = edp_group if "experts" in n else dp_group
        dist.all_reduce(p.grad, group=g)
        p.grad.div_(dist.get_world_size(g))


def step(model, batch, opt, dp_group, edp_group):
    model(batch).backward()
    average(model, dp_group, edp_group)
    opt.step()
    opt.zero_grad()
