"""Ring attention with a backward in which keys, values and their gradients travel together."""
import torch
import torch.distributed as dist


def rotate(tensors, group):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    to = dist.get_global_rank(group, (r + 1) % n)
    frm = dist.get_global_rank(group, (r - 1) % n)
    out = [torch.empty_like(t) for t in tensors]
    ops = []
    for t, o in zip(tensors, out):
        ops.append(dist.P2POp(dist.isend, t.contiguous(), to, group))
        ops.append(dist.P2POp(dist.irecv, o, frm, group))
    for w in dist.batch_isend_irecv(ops):
        w.wait()
    return out


class Ring(torch.autograd.Function):
    """Bidirectional attention over a sequence that is cut over the group."""

    @staticmethod
    def forward(ctx, q, k, v, group):
        ctx.group = group
        scale = q.shape[-1] ** -0.5
        n = dist.get_world_size(group)
        out = torch.zeros_like(q, dtype=torch.float32)
        lse = q.new_full(q.shape[:-1], float("-inf"), dtype=torch.float32)
        kk, vv = k, v
        for step in range(n):
            s = (q @ kk.transpose(-1, -2)).float() * scale
            new = s.logsumexp(-1)
            total = torch.logaddexp(lse, new)
            out = out * (lse - total).exp()[..., None] + (s - total[..., None]).exp() @ vv.float()
            lse = total
            if step < n - 1:
                kk, vv = rotate([kk, vv], group)
        out = out.type_as(q)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        group, scale = ctx.group, q.shape[-1] ** -0.5
        n = dist.get_world_size(group)
        delta = (dout.float() * out.float()).sum(-1, keepdim=True)
        dq = torch.zeros_like(q, dtype=torch.float32)
        dk, dv = torch.zeros_like(dq), torch.zeros_like(dq)
        kk, vv = k, v
        for _ in range(n):
            p = ((q @ kk.transpose(-1, -2)).float() * scale - lse[..., None]).exp()
            dv += p.transpose(-1, -2) @ dout.float()
            ds = p * (dout.float() @ vv.float().transpose(-1, -2) - delta) * scale
            dq += ds @ kk.float()
            dk += ds.transpose(-1, -2) @ q.float()
            # after n rounds everything is at home again
            kk, vv, dk, dv = rotate([kk, vv, dk, dv], group)
        return dq.type_as(q), dk.type_as(k), dv.type_as(v), None


class Attention(torch.nn.Module):
    def __init__(self, dim, heads, group):
        super().__init__()
        self.heads, self.group = heads, group
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(Ring.apply(q, k, v, self.group).transpose(1, 2).flatten(2))
