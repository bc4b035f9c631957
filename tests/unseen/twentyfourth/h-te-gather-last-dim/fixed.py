"""Column-parallel linear under sequence parallelism that keeps a transposed input for backward.

After NVIDIA/TransformerEngine issue #530 (transformer_engine/pytorch/distributed.py
`gather_along_last_dim`, used in module/linear.py).
"""
import torch
import torch.distributed as dist


def gather_along_first_dim(x, group):
    world_size = dist.get_world_size(group)
    if world_size == 1:
        return x
    out = torch.empty(world_size * x.size(0), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def gather_along_last_dim(x, group):
    world_size = dist.get_world_size(group)
    if world_size == 1:
        return x
    out = torch.empty(world_size * x.size(0), *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return torch.cat(out.chunk(world_size, dim=0), dim=-1)


def reduce_scatter_along_first_dim(x, group):
    world_size = dist.get_world_size(group)
    if world_size == 1:
        return x
    out = torch.empty(x.size(0) // world_size, *x.shape[1:], dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, weight, tp_group):
        # inp: [tokens / tp, in], weight: [out / tp, in]
        ctx.tp_group = tp_group
        total = gather_along_first_dim(inp, tp_group)
        # the gemm of the weight gradient wants the transposed operand
        ctx.save_for_backward(inp.t().contiguous(), weight)
        return total @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        inp_t, weight = ctx.saved_tensors
        dgrad = reduce_scatter_along_first_dim(grad_output @ weight, ctx.tp_group)
        inp_t_total = gather_along_last_dim(inp_t, ctx.tp_group)  # [in, tokens]
        wgrad = grad_output.t() @ inp_t_total.t()
        return dgrad, wgrad, None


class Linear(torch.nn.Module):
    def __init__(self, in_features, out_features, tp_group):
        super().__init__()
        self.tp_group = tp_group
        shard = out_features // dist.get_world_size(tp_group)
        self.weight = torch.nn.Parameter(torch.empty(shard, in_features))  # loaded by the caller
        setattr(self.weight, "tensor_model_parallel", True)

    def forward(self, inp):
        lead = inp.shape[1:-1]  # [s / tp, b, in] -> rows ordered by sequence position
        out = _Linear.apply(inp.reshape(-1, inp.size(-1)), self.weight, self.tp_group)
        return out.view(-1, *lead, out.size(-1))
