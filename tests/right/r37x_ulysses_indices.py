import torch
import torch.distributed as dist


def swap(x, scatter_idx, gather_idx, group):
    size = dist.get_world_size(group)
    b, s, n, d = x.shape
    if scatter_idx < 2:  # sequence out, heads in
        x = x.reshape(b, size, s // size, n, d).permute(1, 0, 2, 3, 4).contiguous()
    else:  # heads out, sequence in
        x = x.reshape(b, s, size, n // size, d).permute(2, 0, 1, 3, 4).contiguous()
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x, group=group)
    if scatter_idx < 2:
        return out.permute(1, 2, 0, 3, 4).reshape(b, s // size, n * size, d)
    return out.permute(1, 0, 2, 3, 4).reshape(b, s * size, n // size, d)


class SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, scatter_idx, gather_idx):
        ctx.group, ctx.scatter_idx, ctx.gather_idx = group, scatter_idx, gather_idx
        return swap(x, scatter_idx, gather_idx, group)

    @staticmethod
    def backward(ctx, grad):
        return None, SeqAllToAll.apply(ctx.group, grad, ctx.gather_idx, ctx.scatter_idx), None, None


class DistributedAttention(torch.nn.Module):
    def __init__(self, attention, group, scatter_idx: int = 2, gather_idx: int = 1):
        super().__init__()
        self.attention, self.group = attention, group
        self.scatter_idx, self.gather_idx = scatter_idx, gather_idx

    def forward(self, q, k, v):
        q = SeqAllToAll.apply(self.group, q, self.scatter_idx, self.gather_idx)
        k = SeqAllToAll.apply(self.group, k, self.scatter_idx, self.gather_idx)
        v = SeqAllToAll.apply(self.group, v, self.scatter_idx, self.gather_idx)
        return SeqAllToAll.apply(self.group, self.attention(q, k, v), self.gather_idx, self.scatter_idx)
