import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(model, opt, loader, dp_group, cp_group, grad_sync):
    """`grad_sync` is given by the launcher (it reduces over cp); dp is done here."""
    cp, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    for ids, labels in loader:
        ids, labels = ids.cuda().chunk(cp, dim=1)[r], labels.cuda().chunk(cp, dim=1)[r]
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
        grad_sync(model)
        opt.step()
        opt.zero_grad()
