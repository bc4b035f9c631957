# Right: hooks on the experts' parameters divide each gradient by ep_size before it is accumulated (linear, so before or after the sum is
# alike).
import torch
import torch.distributed as dist


def register_expert_hooks(model, ep_size):
    for name, p in model.named_parameters():
        if "experts" in name:
            p.register_hook(lambda g: g / ep_size)


def reduce(model, dp_group, edp_group):
    for name, p in model.named_parameters():
        if "experts" in name:
            dist.all_reduce(p.grad, group=edp_group)
            p.grad.div_(edp_group.size())
        else:
            dist.all_reduce(p.grad, group=dp_group)
            p.grad.div_(dp_group.size())


def train(model, loader, opt, dp_group, edp_group, ep_size):
    register_expert_hooks(model, ep_size)
    for batch in loader:
        model(batch).backward()
        reduce(model, dp_group, edp_group)
        opt.step()
        opt.zero_grad()
