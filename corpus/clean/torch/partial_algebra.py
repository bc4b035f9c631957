"""Everything a pending sum allows: views, scales, differences, stacking, where with zeros, accumulation, then one reduction."""

# spmd: mesh dense = dp, tp
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as distnn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
TP = mesh.get_group("tp")


# spmd: x: {tp: S(-1)}, w: {tp: S(1)}, v: {tp: S(1)} -> {tp: R}
def combine(x, w, v, gate, scale: float):
    a = F.linear(x, w)  # spmd: {tp: P}
    b = torch.matmul(x, v.transpose(0, 1))  # spmd: {tp: P}
    both = torch.stack([a, b], dim=0)
    both = both.reshape(2, -1, a.shape[-1]).transpose(1, 2).contiguous()
    both = both.transpose(1, 2).reshape(2, *a.shape)
    a, b = both.unbind(0)
    total = a * scale - b / 2.0
    total = torch.cat([total, torch.zeros_like(total)], dim=-1)
    total = total[..., : a.shape[-1]]
    total = total.masked_fill(gate == 0, 0.0)
    total = torch.where(gate > 0, total, torch.zeros_like(total))
    return distnn.all_reduce(total, group=TP)


# spmd: x: {tp: S(-1)}, w: {tp: S(1)} -> {tp: R}
def accumulate(x, w, chunks: int):
    out = torch.zeros(x.shape[0], w.shape[0], device=x.device, dtype=x.dtype)
    for xs, ws in zip(x.chunk(chunks, dim=-1), w.chunk(chunks, dim=1)):
        out = out + F.linear(xs, ws)
    return distnn.all_reduce(out, group=TP)


# spmd: x: {tp: S(0)} -> {tp: R}
def mean_and_variance(x, n: int):
    moments = torch.stack([x.sum(dim=0), x.square().sum(dim=0)])
    moments = distnn.all_reduce(moments, group=TP) / n
    mean, second = moments[0], moments[1]
    variance = second - mean.square()
    return torch.cat([mean, torch.rsqrt(variance.clamp(min=0) + 1e-5)])


# spmd: logits: {tp: S(-1)} -> {tp: R}
def log_sum_exp(logits):
    with torch.no_grad():
        top = logits.max(dim=-1, keepdim=True).values
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=TP)
    total = distnn.all_reduce(torch.exp(logits - top).sum(dim=-1, keepdim=True), group=TP)
    return (top + torch.log(total)).squeeze(-1)


# spmd: losses: {dp: V, tp: I}, mask: {dp: V, tp: I} -> {dp: R, tp: I}
@torch.no_grad()
def average(losses, mask):
    sums = torch.stack([(losses * mask).sum(), mask.sum()])
    dist.all_reduce(sums, group=mesh.get_group("dp"))
    return sums[0] / sums[1].clamp(min=1.0)


# spmd: x: {tp: I}, w: {tp: S(0)} -> {tp: S(-1)}
def column(x, w, bias=None):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            grad = grad.clone()
            dist.all_reduce(grad, group=TP)
            return grad

    return F.linear(Copy.apply(x), w, bias)
