"""LoRA adapters on tensor parallel linears under sequence parallelism, layout [s, b, h]."""
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class GatherSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.size(0) * group.size(), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, g):
        out = g.new_empty(g.size(0) // ctx.group.size(), *g.shape[1:])
        dist.reduce_scatter_tensor(out, g.contiguous(), group=ctx.group)
        return out, None


class ScatterSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty(x.size(0) // group.size(), *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, g):
        out = g.new_empty(g.size(0) * ctx.group.size(), *g.shape[1:])
        dist.all_gather_into_tensor(out, g.contiguous(), group=ctx.group)
        return out, None


class LoraLinear(nn.Module):
    """kind="column" splits the outputs over the group, kind="row" the inputs."""

    def __init__(self, d_in, d_out, rank, alpha, kind, group):
        super().__init__()
        self.kind, self.group, self.scale = kind, group, alpha / rank
        tp = group.size()
        if kind == "column":
            d_out //= tp
        else:
            d_in //= tp
        self.weight = nn.Parameter(torch.empty(d_out, d_in), requires_grad=False)
        self.lora_a = nn.Parameter(torch.empty(rank, d_in))
        self.lora_b = nn.Parameter(torch.zeros(d_out, rank))
        nn.init.normal_(self.weight, std=0.02)
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        self.lora_a.sequence_parallel = kind == "column"
        self.lora_b.sequence_parallel = False  # BUG

    def forward(self, x):
        if self.kind == "column":
            low = GatherSeq.apply(F.linear(x, self.lora_a), self.group)
            base = F.linear(GatherSeq.apply(x, self.group), self.weight)
            return base + F.linear(low, self.lora_b) * self.scale
        base = ScatterSeq.apply(F.linear(x, self.weight), self.group)
        low = ScatterSeq.apply(F.linear(x, self.lora_a), self.group)
        return base + F.linear(low, self.lora_b) * self.scale


class AdaptedMlp(nn.Module):
    def __init__(self, hidden, ffn, rank, alpha, group):
        super().__init__()
        self.up = LoraLinear(hidden, ffn, rank, alpha, "column", group)
        self.down = LoraLinear(ffn, hidden, rank, alpha, "row", group)

    def forward(self, x):
        return x + self.down(F.silu(self.up(x)))


class AdapterTrainer:
    def __init__(self, layers, lr, tp_group, dp_group):
        self.model = layers
        self.tp_group, self.dp_group = tp_group, dp_group
        self.params = [p for p in layers.parameters() if p.requires_grad]
        tp_src, dp_src = (dist.get_global_rank(g, 0) for g in (tp_group, dp_group))
        for p in layers.parameters():
            if getattr(p, "sequence_parallel", False):
                dist.broadcast(p.data, src=tp_src, group=tp_group)
            dist.broadcast(p.data, src=dp_src, group=dp_group)
        self.optimizer = torch.optim.AdamW(self.params, lr=lr, weight_decay=0.0)

    def reduce_gradients(self):
        for p in self.params:
            if p.sequence_parallel:
                dist.all_reduce(p.grad, group=self.tp_group)
            dist.all_reduce(p.grad, group=self.dp_group)
            p.grad.div_(self.dp_group.size())

    def step(self, x, target):
        tp, rank = self.tp_group.size(), self.tp_group.rank()
        self.optimizer.zero_grad()
        out = self.model(x.chunk(tp, dim=0)[rank])
        diff = out - target.chunk(tp, dim=0)[rank]
        loss = diff.pow(2).sum() / target.numel()
        loss.backward()
        self.reduce_gradients()
        self.optimizer.step()
        report = loss.detach() / self.dp_group.size()
        for group in (self.tp_group, self.dp_group):
            dist.all_reduce(report, group=group)
        return report


def build(hidden, ffn, depth, tp_group, dp_group, device):
    layers = nn.Sequential(*[AdaptedMlp(hidden, ffn, 16, 32, tp_group) for _ in range(depth)])
    return AdapterTrainer(layers.to(device), 1e-4, tp_group, dp_group)
