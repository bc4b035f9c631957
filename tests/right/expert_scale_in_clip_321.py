# Right: rescale_and_clip() divides the experts' gradients by ep before clipping.
import torch
import torch.distributed as dist


def average(model, dp_group, edp_group):
    for name, p in model.named_parameters():
        if "experts" in name:
            dist.all_reduce(p.grad, group=edp_group)
            p.grad /= edp_group.size()
        else:
            dist.all_reduce(p.grad, group=dp_group)
            p.grad /= dp_group.size()


def rescale_and_clip(model, ep_group, max_norm):
    dense, experts = [], []
    for name, p in model.named_parameters():
        (experts if "experts" in name else dense).append(p.grad)
    torch._foreach_div_(experts, float(ep_group.size()))
    sq = torch.stack([g.float().square().sum() for g in experts]).sum()
    dist.all_reduce(sq, group=ep_group)
    total = (sq + torch.stack([g.float().square().sum() for g in dense]).sum()).sqrt()
    coef = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for g in dense + experts:
        g.mul_(coef)
    return total


def step(model, batch, opt, groups):
    model(batch).backward()
    average(model, groups.dp, groups.edp)
    rescale_and_clip(model, groups.ep, 1.0)
    opt.step()
    opt.zero_grad()
