"""Each tp rank sums the loss of its part of the sequence, all of them know all labels."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def sequence_split_loss(hidden, lm_head, labels, tp_group):
    # hidden: [b, s/tp, h] of this rank; labels: [b, s] on every rank
    n, r = dist.get_world_size(tp_group), dist.get_rank(tp_group)
    own = labels.chunk(n, dim=1)[r]
    logits = F.linear(hidden, lm_head)
    nll = F.cross_entropy(logits.flatten(0, 1), own.flatten(), ignore_index=-100, reduction="sum")
    total = SumForward.apply(nll, tp_group)
    return total / (labels != -100).sum()


def sum_head_gradient(lm_head, tp_group):
    # the head is whole on each rank and has seen this rank's positions
    dist.all_reduce(lm_head.grad, group=tp_group)


def train(model, lm_head, loader, optimizer, tp_group, dp_group):
    for tokens, labels in loader:
        loss = sequence_split_loss(model(tokens), lm_head, labels, tp_group)
        loss.backward()
        sum_head_gradient(lm_head, tp_group)
        for p in [*model.parameters(), lm_head]:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
        optimizer.step()
        optimizer.zero_grad()
