"""The number of positions is taken from the whole ids, the loss from the own half of them."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def zigzag(x, group):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    c = x.chunk(2 * n, dim=1)
    return torch.cat([c[r], c[2 * n - 1 - r]], dim=1)


def forward_backward(model, ids, labels, cp_group):
    own_ids, own_labels = zigzag(ids, cp_group), zigzag(labels, cp_group)
    logits = model(own_ids)
    nll = F.cross_entropy(logits.flatten(0, 1), own_labels.flatten(), reduction="sum")
    loss = nll / ids.numel()
    loss.backward()
    return loss.detach()


def reduce_gradients(model, dp_group, cp_group):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=cp_group)  # parts of one sequence: a sum
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)  # sequences: a mean


def train(model, loader, optimizer, dp_group, cp_group):
    for ids, labels in loader:
        loss = forward_backward(model, ids, labels, cp_group)
        reduce_gradients(model, dp_group, cp_group)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss, group=cp_group)
        dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=dp_group)
        if dist.get_rank() == 0:
            print(loss.item())
