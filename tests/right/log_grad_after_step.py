"""After the step gradients of one layer are gathered for a histogram; the update used those of FSDP."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


@torch.no_grad()
def cosine_between_ranks(local_grads, group):
    """How much the micro batches of the ranks agree: |mean|^2 / mean |.|^2."""
    flat = torch.cat([g.flatten() for g in local_grads])
    own = flat.pow(2).sum()
    dist.all_reduce(own, op=dist.ReduceOp.AVG, group=group)
    dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=group)
    return flat.pow(2).sum() / own


class Probe:
    """A small head of its own on detached features, trained per rank to measure, never used by the model."""

    def __init__(self, dim, classes, group):
        self.head = torch.nn.Linear(dim, classes).cuda()
        self.group = group

    def agreement(self, features, labels):
        loss = torch.nn.functional.cross_entropy(self.head(features.detach()), labels)
        grads = torch.autograd.grad(loss, list(self.head.parameters()))
        return cosine_between_ranks(grads, self.group).item()


def train(model, loader, mesh, dim, classes):
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    probe = Probe(dim, classes, mesh.get_group())
    for step, (x, y) in enumerate(loader):
        features, logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            with torch.no_grad():
                g = model.head.weight.grad.full_tensor()
                top = g.norm(dim=1).topk(5).values
            agree = probe.agreement(features, y)
            if dist.get_rank() == 0:
                print(step, top.tolist(), agree)
        optimizer.zero_grad()
