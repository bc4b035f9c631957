"""A classifier over sequences that are cut: pooled sums are added up, the encoder's gradients are summed over cp, the head's are whole."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class SumParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Classifier(nn.Module):
    def __init__(self, encoder, dim, classes, cp_group):
        super().__init__()
        self.encoder, self.head, self.cp_group = encoder, nn.Linear(dim, classes), cp_group

    def forward(self, ids, mask):
        h = self.encoder(ids) * mask[..., None]
        pooled = SumParts.apply(h.sum(1), self.cp_group)
        lengths = mask.sum(1)
        dist.all_reduce(lengths, group=self.cp_group)
        return self.head(pooled / lengths[:, None])


def reduce_gradients(model, dp_group):
    for p in model.encoder.parameters():
        dist.all_reduce(p.grad, group=model.cp_group)
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)


def train(model, loader, optimizer, dp_group):
    for ids, mask, y in loader:
        loss = F.cross_entropy(model(ids, mask.float()), y)
        loss.backward()
        reduce_gradients(model, dp_group)
        optimizer.step()
        optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=dp_group)
        print(shown.item())
