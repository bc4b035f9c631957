"""Ulysses sequence parallel training on top of DistributedDataParallel."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP


class SwapHeadsAndSequence(torch.autograd.Function):
    """[b, s/p, h, d] -> [b, s, h/p, d], or back."""

    @staticmethod
    def swap(x, scatter, gather, group):
        pieces = [p.contiguous() for p in x.chunk(group.size(), dim=scatter)]
        received = [torch.empty_like(p) for p in pieces]
        dist.all_to_all(received, pieces, group=group)
        return torch.cat(received, dim=gather)

    @staticmethod
    def forward(ctx, x, scatter, gather, group):
        ctx.args = (gather, scatter, group)
        return SwapHeadsAndSequence.swap(x, scatter, gather, group)

    @staticmethod
    def backward(ctx, grad):
        return SwapHeadsAndSequence.swap(grad, *ctx.args), None, None, None


class UlyssesBlock(nn.Module):
    def __init__(self, dim, heads, group):
        super().__init__()
        self.heads, self.group = heads, group
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, s, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, s, self.heads, 3 * d // self.heads)
        q, k, v = SwapHeadsAndSequence.apply(qkv, 2, 1, self.group).chunk(3, dim=-1)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        out = SwapHeadsAndSequence.apply(out.contiguous(), 1, 2, self.group)
        x = x + self.out(out.reshape(b, s, d))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, vocab, max_len, dim, heads, depth, group):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList(UlyssesBlock(dim, heads, group) for _ in range(depth))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens, positions):
        x = self.embed(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ParallelState:
    def __init__(self, ulysses):
        shape = (dist.get_world_size() // ulysses, ulysses)
        self.mesh = init_device_mesh("cuda", shape, mesh_dim_names=("dp", "ulysses"))
        self.dp_group = self.mesh.get_group("dp")
        self.sp_group = self.mesh.get_group("ulysses")
        self.dp_sp_group = self.mesh["dp", "ulysses"]._flatten("dp_sp").get_group()


def wrap(model, state, device):
    group = state.dp_sp_group
    return DDP(model.to(device), device_ids=[device.index], process_group=group)


def train_step(model, optimizer, state, tokens, targets):
    size, rank = state.sp_group.size(), state.sp_group.rank()
    positions = torch.arange(tokens.size(1), device=tokens.device)
    tokens, targets = (t.chunk(size, dim=1)[rank] for t in (tokens, targets))
    positions = positions.chunk(size)[rank]
    count = (targets != -100).sum()
    dist.all_reduce(count, group=state.dp_sp_group)
    logits = model(tokens, positions).flatten(0, 1).float()
    total = F.cross_entropy(logits, targets.flatten(), ignore_index=-100, reduction="sum")
    loss = total / count
    optimizer.zero_grad()
    (loss * model.process_group.size()).backward()
    optimizer.step()
    report = loss.detach().clone()
    dist.all_reduce(report, group=state.dp_sp_group)
    return report
