# thread: https://github.com/awslabs/slapo/pull/20
"""Synchronisation hooks that a model schedule attaches to modules (sequence parallelism included)."""
import torch
import torch.distributed as dist
from torch import nn


def _split_along(x, dim, group):
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    return x.chunk(world, dim=dim)[rank].contiguous()


def _gather_along(x, dim, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=dim)


def _reduce_scatter_along(x, dim, group):
    parts = [p.contiguous() for p in x.chunk(dist.get_world_size(group), dim=dim)]
    out = torch.empty_like(parts[0])
    dist.reduce_scatter(out, parts, group=group)
    return out


class _AllGatherForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group, tensor_parallel_output_grad):
        ctx.dim, ctx.group = dim, group
        ctx.tensor_parallel_output_grad = tensor_parallel_output_grad
        return _gather_along(x, dim, group)

    @staticmethod
    def backward(ctx, grad):
        grad = _split_along(grad, ctx.dim, ctx.group)  # BUG
        return grad, None, None, None


class _ReduceScatterForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return _reduce_scatter_along(x, dim, group)

    @staticmethod
    def backward(ctx, grad):
        return _gather_along(grad, ctx.dim, ctx.group), None, None


class _ScatterForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return _split_along(x, dim, group)

    @staticmethod
    def backward(ctx, grad):
        return _gather_along(grad, ctx.dim, ctx.group), None, None


class Schedule:
    def __init__(self, module: nn.Module, group):
        self.mod, self.group = module, group

    def __getitem__(self, path):
        return Schedule(self.mod.get_submodule(path), self.group)

    def shard(self, name, axis):
        param = getattr(self.mod, name)
        setattr(self.mod, name, nn.Parameter(_split_along(param.data, axis, self.group)))

    def sync(self, mode, sync_op, axis=1, tensor_parallel_output_grad=True):
        if mode == "fwd_pre" and sync_op == "all_gather":
            def pre_hook(_mod, inputs):
                full = _AllGatherForward.apply(inputs[0], axis, self.group, tensor_parallel_output_grad)
                return (full,) + inputs[1:]

            self.mod.register_forward_pre_hook(pre_hook)
        elif mode == "fwd_post":
            def post_hook(_mod, _inputs, out):
                if sync_op == "reduce_scatter":
                    return _ReduceScatterForward.apply(out, axis, self.group)
                if sync_op == "scatter":
                    return _ScatterForward.apply(out, axis, self.group)
                return _AllGatherForward.apply(out, axis, self.group, tensor_parallel_output_grad)

            self.mod.register_forward_hook(post_hook)
        else:
            raise ValueError(f"unsupported sync {mode} / {sync_op}")

    def reduce_param_grads(self):
        def hook(grad):
            grad = grad.contiguous()
            dist.all_reduce(grad, group=self.group)
            return grad

        for param in self.mod.parameters():
            param.register_hook(hook)


def schedule_gpt(model, group):
    """Linear layers carry no bias; layer norms run on sequence shards."""
    sch = Schedule(model, group)
    sch["ln_f"].reduce_param_grads()
    sch["wte"].sync("fwd_post", "scatter")
    sch["ln_f"].sync("fwd_post", "all_gather", tensor_parallel_output_grad=False)
    for i in range(len(model.h)):
        sch[f"h.{i}.ln_1"].reduce_param_grads()
        sch[f"h.{i}.ln_2"].reduce_param_grads()
        for up, down in (("attn.qkv", "attn.out_proj"), ("mlp.fc_in", "mlp.fc_out")):
            sch[f"h.{i}.{up}"].shard("weight", 0)
            sch[f"h.{i}.{up}"].sync("fwd_pre", "all_gather")
            sch[f"h.{i}.{down}"].shard("weight", 1)
            sch[f"h.{i}.{down}"].sync("fwd_post", "reduce_scatter")
    return model
