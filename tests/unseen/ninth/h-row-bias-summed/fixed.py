"""Tensor parallel vision transformer block with biases everywhere."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class EnterRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class LeaveRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ColumnLinear(nn.Module):
    def __init__(self, d_in, d_out, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(d_out // group.size(), d_in))
        self.bias = nn.Parameter(torch.zeros(d_out // group.size()))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x):
        return F.linear(EnterRegion.apply(x, self.group), self.weight, self.bias)


class RowLinear(nn.Module):
    def __init__(self, d_in, d_out, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(d_out, d_in // group.size()))
        self.bias = nn.Parameter(torch.zeros(d_out))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x):
        out = LeaveRegion.apply(F.linear(x, self.weight), self.group)
        return out + self.bias


class Block(nn.Module):
    def __init__(self, dim, heads, group):
        super().__init__()
        self.heads = heads // group.size()
        self.head_dim = dim // heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = ColumnLinear(dim, 3 * dim, group)
        self.proj = RowLinear(dim, dim, group)
        self.fc1 = ColumnLinear(dim, 4 * dim, group)
        self.fc2 = RowLinear(4 * dim, dim, group)

    def forward(self, x):
        b, n, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, n, self.heads, 3, self.head_dim)
        q, k, v = qkv.permute(3, 0, 2, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, -1)
        x = x + self.proj(out)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Classifier(nn.Module):
    def __init__(self, dim, heads, depth, patch_dim, patches, classes, group):
        super().__init__()
        self.embed = nn.Linear(patch_dim, dim)
        self.position = nn.Parameter(torch.zeros(1, patches, dim))
        self.blocks = nn.ModuleList(Block(dim, heads, group) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, patches):
        x = self.embed(patches) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


def synchronize_initial(model, tp_group, dp_group):
    for module in (model.embed, model.head):
        for param in module.parameters():
            dist.broadcast(param.data, src=dist.get_global_rank(tp_group, 0), group=tp_group)
    for param in model.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)


def train_step(model, optimizer, patches, labels, dp_group):
    loss = F.cross_entropy(model(patches), labels)
    optimizer.zero_grad()
    loss.backward()
    for param in model.parameters():
        dist.all_reduce(param.grad, group=dp_group)
        param.grad.div_(dp_group.size())
    optimizer.step()
    return loss.detach()
