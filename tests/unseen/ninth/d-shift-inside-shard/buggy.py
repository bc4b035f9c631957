"""Long context fine-tuning: the sequence is split over the context parallel group."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

IGNORE = -100


class GatherKeys(torch.autograd.Function):
    """Concatenates dim 2 over the group; the gradient is summed back to its owner."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=2)

    @staticmethod
    def backward(ctx, grad):
        pieces = [p.contiguous() for p in grad.chunk(ctx.group.size(), dim=2)]
        out = torch.empty_like(pieces[0])
        dist.reduce_scatter(out, pieces, group=ctx.group)
        return out, None


class Block(nn.Module):
    def __init__(self, hidden, heads, group):
        super().__init__()
        self.heads, self.group = heads, group
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x, positions):
        b, s, h = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, h // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        k, v = GatherKeys.apply(k, self.group), GatherKeys.apply(v, self.group)
        visible = positions[:, None] >= torch.arange(k.size(2), device=x.device)
        attn = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + self.out(attn.transpose(1, 2).reshape(b, s, h))
        return x + self.mlp(self.norm2(x))


class LongModel(nn.Module):
    def __init__(self, vocab, hidden, heads, depth, max_len, group):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(max_len, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, group) for _ in range(depth))
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, positions):
        x = self.embed(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x, positions)
        return self.head(x)


def next_tokens(labels):
    return F.pad(labels[:, 1:], (0, 1), value=IGNORE)


def local_part(tensor, group):
    return tensor.chunk(group.size(), dim=1)[group.rank()]


class Trainer:
    def __init__(self, model, lr, cp_group, dp_cp_group):
        self.model, self.cp_group, self.dp_cp_group = model, cp_group, dp_cp_group
        for param in model.parameters():
            dist.broadcast(param.data, src=dist.get_global_rank(dp_cp_group, 0), group=dp_cp_group)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def step(self, tokens, labels):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        targets = next_tokens(local_part(labels, self.cp_group))  # BUG
        inputs = local_part(tokens, self.cp_group)
        positions = positions.chunk(self.cp_group.size())[self.cp_group.rank()]
        count = (targets != IGNORE).sum()
        dist.all_reduce(count, group=self.dp_cp_group)
        logits = self.model(inputs, positions)
        total = F.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORE, reduction="sum"
        )
        loss = total / count
        self.optimizer.zero_grad()
        loss.backward()
        for param in self.model.parameters():
            dist.all_reduce(param.grad, group=self.dp_cp_group)
        self.optimizer.step()
        report = loss.detach().clone()
        dist.all_reduce(report, group=self.dp_cp_group)
        return report
