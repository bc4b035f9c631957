"""Expert parallelism: uneven all-to-all whose backward swaps the sizes, aux loss by an auto scaler."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, out_sizes, in_sizes):
        ctx.group, ctx.out_sizes, ctx.in_sizes = group, out_sizes, in_sizes
        out = x.new_empty((sum(out_sizes), *x.shape[1:]))
        dist.all_to_all_single(out, x.contiguous(), out_sizes, in_sizes, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return None, AllToAll.apply(ctx.group, grad, ctx.in_sizes, ctx.out_sizes), None, None


class AuxScaler(torch.autograd.Function):
    scale = torch.tensor(1.0)

    @staticmethod
    def forward(ctx, out, aux):
        ctx.save_for_backward(aux)
        return out

    @staticmethod
    def backward(ctx, grad):
        (aux,) = ctx.saved_tensors
        return grad, torch.ones_like(aux) * AuxScaler.scale.to(aux.device)


class MoE(nn.Module):
    def __init__(self, dim, ffn, experts, group, coeff=0.01):
        super().__init__()
        self.group, self.experts, self.coeff = group, experts, coeff
        self.n = dist.get_world_size(group)
        self.router = nn.Linear(dim, experts, bias=False)
        local = experts // self.n
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(dim, ffn), nn.GELU(), nn.Linear(ffn, dim)) for _ in range(local))

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        weight, idx = probs.max(-1)
        order = idx.argsort(stable=True)
        counts = torch.bincount(idx, minlength=self.experts)
        recv = torch.empty_like(counts)
        dist.all_to_all_single(recv, counts, group=self.group)
        sends = counts.view(self.n, -1).sum(1).tolist()
        recv = recv.view(self.n, -1)
        gets = recv.sum(1).tolist()
        got = AllToAll.apply(self.group, x[order], gets, sends)
        owner = torch.arange(recv.shape[1], device=x.device).repeat(self.n)
        owner = owner.repeat_interleave(recv.flatten())
        done = torch.zeros_like(got)
        for e, mlp in enumerate(self.mlps):
            rows = (owner == e).nonzero().squeeze(-1)
            done = done.index_copy(0, rows, mlp(got[rows]))
        back = AllToAll.apply(self.group, done, sends, gets)
        out = torch.empty_like(back).index_copy(0, order, back) * weight[:, None]
        load = F.one_hot(idx, self.experts).float().mean(0)
        aux = self.coeff * self.experts * (load * probs.mean(0)).sum()
        return AuxScaler.apply(out, aux)
