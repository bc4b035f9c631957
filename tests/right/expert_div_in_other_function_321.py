# Right: scale_expert_gradients(model, ep_size), called after average_gradients and before the step, multiplies experts by 1/ep.
import torch
import torch.distributed as dist


def average_gradients(model, dp_group, edp_group):
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        group = edp_group if ".experts." in name else dp_group
        dist.all_reduce(p.grad, group=group)
        p.grad.div_(dist.get_world_size(group))


def scale_expert_gradients(model, ep_size):
    """Expert gradients hold the tokens of ep_size ranks."""
    for name, p in model.named_parameters():
        if ".experts." in name and p.grad is not None:
            p.grad.mul_(1.0 / ep_size)


def train_step(model, batch, opt, groups):
    loss = model(batch)
    loss.backward()
    average_gradients(model, groups.dp, groups.edp)
    scale_expert_gradients(model, groups.ep_size)
    opt.step()
    opt.zero_grad()
