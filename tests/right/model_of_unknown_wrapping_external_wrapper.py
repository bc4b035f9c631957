# What it does: the model goes through a function that is not in the project.
# Why it is right: nothing is known of what `wrap_model` makes: here a wrapper that averages over dp.
import torch, torch.distributed as dist, torch.nn.functional as F
from mylib import wrap_model


def train(net, loader, dp_group, cp_group, dp_cp_group):
    model = wrap_model(net, dp_group)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        count = (y != -100).sum()
        dist.all_reduce(count, group=dp_cp_group)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) * dp_group.size() / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=cp_group)
        opt.step()
        opt.zero_grad()
