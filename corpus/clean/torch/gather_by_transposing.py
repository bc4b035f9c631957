import torch
import torch.distributed as dist


def all_gather(group, tensor, gather_dim=-1):
    world_size = dist.get_world_size(group)
    if world_size == 1:
        return tensor
    gather_dim = (gather_dim + tensor.ndim) % tensor.ndim
    shape = [tensor.size(dim) * world_size if dim == gather_dim else tensor.size(dim) for dim in range(tensor.ndim)]
    if gather_dim != 0:
        shape[0], shape[gather_dim] = shape[gather_dim], shape[0]
    tensors = torch.empty(*shape, dtype=tensor.dtype, device=tensor.device)

    if gather_dim != 0:
        tensor = tensor.transpose(0, gather_dim)
    tensor = tensor.contiguous()

    dist.all_gather_into_tensor(tensors, tensor, group=group)
    if gather_dim != 0:
        tensors = tensors.transpose(0, gather_dim).contiguous()
    return tensors


def split(group, tensor, split_dim=-1):
    world_size = dist.get_world_size(group)
    if world_size == 1:
        return tensor
    rank = dist.get_rank(group)
    size = tensor.size()
    tensors = torch.split(tensor, size[split_dim] // world_size, dim=split_dim)
    return tensors[rank].contiguous()


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group, dim=-1):
        ctx.group = group
        ctx.dim = dim
        return split(group=group, tensor=tensor, split_dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        return Gather.apply(grad_output, group=ctx.group, dim=ctx.dim), None, None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group, dim=-1):
        ctx.group = group
        ctx.dim = dim
        return all_gather(group=group, tensor=tensor, gather_dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        return Scatter.apply(grad_output, group=ctx.group, dim=ctx.dim), None, None
