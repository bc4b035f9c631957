# What it does: a method of a model of unknown class divides the gradients by the number of ranks.
# Why it is right: nothing is known of `scale_gradients`.
import torch, torch.distributed as dist, torch.nn.functional as F


def train(model, loader, opt, dp_group):
    ws = dist.get_world_size(dp_group)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
        model.scale_gradients(1.0 / ws)
        opt.step()
        opt.zero_grad()
