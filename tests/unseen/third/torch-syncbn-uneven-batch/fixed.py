"""Synchronised batch norm for ranks with different batch sizes."""
# Source: pytorch/pytorch pull request 36382 (confirmed from the thread)
import torch
import torch.distributed as dist


def _local_size(x):
    return x.numel() // x.size(1)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, eps, momentum, group):
        world = dist.get_world_size(group)
        dims = [d for d in range(x.dim()) if d != 1]
        mean, var = x.mean(dims), x.var(dims, unbiased=False)
        count = torch.full((1,), _local_size(x), dtype=mean.dtype, device=x.device)

        packed = torch.cat([mean, var, count])
        gathered = packed.new_empty(world, packed.numel())
        dist.all_gather_into_tensor(gathered, packed, group=group)
        mean_all, var_all, count_all = gathered.split([x.size(1), x.size(1), 1], dim=1)

        total = count_all.sum()
        mean = (mean_all * count_all).sum(0) / total
        var = ((var_all + mean_all.square()) * count_all).sum(0) / total - mean.square()
        invstd = torch.rsqrt(var + eps)
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(var * total / (total - 1), momentum)

        shape = [1, -1] + [1] * (x.dim() - 2)
        x_hat = (x - mean.view(shape)) * invstd.view(shape)
        ctx.save_for_backward(x_hat, weight, invstd, count_all)
        ctx.group, ctx.dims, ctx.shape = group, dims, shape
        return x_hat * weight.view(shape) + bias.view(shape)

    @staticmethod
    def backward(ctx, grad_output):
        x_hat, weight, invstd, count_all = ctx.saved_tensors
        grad_weight = (grad_output * x_hat).sum(ctx.dims)
        grad_bias = grad_output.sum(ctx.dims)

        combined = torch.stack([grad_bias, grad_weight])
        dist.all_reduce(combined, group=ctx.group)
        mean_dy, mean_dy_xhat = combined / count_all.sum()
        centred = grad_output - mean_dy.view(ctx.shape) - x_hat * mean_dy_xhat.view(ctx.shape)
        grad_x = centred * (weight * invstd).view(ctx.shape)
        return grad_x, grad_weight, grad_bias, None, None, None, None, None
