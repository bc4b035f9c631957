# thread: https://github.com/NVIDIA-NeMo/Automodel/pull/3822
"""Construction of a feed-forward stack with tensor-parallel linears."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Block(nn.Module):
    def __init__(self, hidden, inner, group):
        super().__init__()
        self.group = group
        part = inner // dist.get_world_size(group)
        self.adapter_in = nn.Linear(hidden, hidden // 8, bias=False)
        self.adapter_out = nn.Linear(hidden // 8, hidden, bias=False)
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, part, bias=False)
        self.down = nn.Linear(part, hidden, bias=False)
        for module in (self.up, self.down):
            module.weight.tensor_parallel = True
        nn.init.normal_(self.up.weight, std=0.02)
        nn.init.normal_(self.down.weight, std=0.02)

    def forward(self, x):
        x = x + self.adapter_out(F.gelu(self.adapter_in(x)))
        h = Enter.apply(self.norm(x), self.group)
        return x + Leave.apply(self.down(F.gelu(self.up(h))), self.group)


def build_model(cfg, mesh):
    """mesh is a (dp, tp) device mesh over all ranks."""
    tp_group, dp_group = mesh.get_group("tp"), mesh.get_group("dp")
    torch.manual_seed(cfg.seed + dist.get_rank(tp_group))
    model = nn.Sequential(*[Block(cfg.hidden, cfg.inner, tp_group) for _ in range(cfg.layers)])
    model.cuda()
    for p in model.parameters():
        if not getattr(p, "tensor_parallel", False):
            dist.broadcast(p.data, src=dist.get_global_rank(tp_group, 0), group=tp_group)
        dist.broadcast(p.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)
    return model


def train_step(model, batch, target, optimizer, mesh):
    dp_group = mesh.get_group("dp")
    loss = F.mse_loss(model(batch), target)
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=dp_group)
        p.grad.div_(dist.get_world_size(dp_group))
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
