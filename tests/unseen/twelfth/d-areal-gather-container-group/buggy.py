"""Gather nested containers of tensors from the data parallel ranks."""
import numpy as np
import torch
import torch.distributed as dist


def _unpad_unflatten(x, shape):
    pad_size = x.numel() - np.prod(shape)
    assert pad_size >= 0, pad_size
    return x[: x.numel() - pad_size].view(*shape)


def _flatten_pad_to_max_numel(x, shapes):
    pad_size = max(np.prod(shape) for shape in shapes) - x.numel()
    assert pad_size >= 0, pad_size
    return torch.nn.functional.pad(x.view(-1), (0, pad_size), value=0)


def all_gather_tensor_container(data, group=None) -> list:
    if torch.is_tensor(data):
        local_shape = list(data.shape)
        shapes = [None for _ in range(dist.get_world_size(group))]
        dist.all_gather_object(shapes, local_shape, group=group)
        y = _flatten_pad_to_max_numel(data, shapes)
        ys = [torch.empty_like(y) for _ in range(dist.get_world_size(group=group))]
        dist.all_gather(ys, y, group=group)
        return [_unpad_unflatten(y, shape) for y, shape in zip(ys, shapes)]

    if isinstance(data, dict):
        results = {k: all_gather_tensor_container(v) for k, v in data.items()}  # BUG: the nested gather runs over the world, not over group
        return [{k: v[i] for k, v in results.items()} for i in range(dist.get_world_size(group))]

    results = [None for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(results, data, group=group)
    return results


def redistribute(trajectory: dict, dp_group) -> list:
    # the tensor/context parallel peers of this rank hold a copy of the same trajectory;
    # each data parallel rank holds different ones
    all_gathered = all_gather_tensor_container(trajectory, group=dp_group)
    return all_gathered
