"""Gradient normalisation and clipping of the transformers model wrapper."""
# thread: modelscope/twinkle#290
import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel as DDP


def normalize_and_clip_grad_norm(parameters, num_tokens, max_grad_norm, norm_type, group=None):
    grads = [p.grad for p in parameters if p.grad is not None]
    local_grads = [g.to_local() if isinstance(g, DTensor) else g for g in grads]
    for g in local_grads:
        g.div_(num_tokens)

    norms = torch.stack([torch.linalg.vector_norm(g.float(), norm_type) for g in local_grads])
    if math.isinf(norm_type):
        total_norm = norms.max()
        if group is not None:
            dist.all_reduce(total_norm, op=dist.ReduceOp.MAX, group=group)
    else:
        total_norm = norms.pow(norm_type).sum()
        if group is not None:
            dist.all_reduce(total_norm, op=dist.ReduceOp.SUM, group=group)
        total_norm = total_norm ** (1.0 / norm_type)

    clip_coef = torch.clamp(max_grad_norm / (total_norm + 1e-6), max=1.0)
    for g in local_grads:
        g.mul_(clip_coef)
    return total_norm


class TransformersModel:
    """Wraps a Hugging Face model with DDP or with fully_shard over the dp mesh."""

    def __init__(self, model, device_mesh, optimizer):
        self.model = model
        self.optimizer = optimizer
        self._dp_group = device_mesh.get_group("dp")
        self._dp_size = dist.get_world_size(self._dp_group)

    def clip_grad_norm(self, num_tokens, max_grad_norm=1.0, norm_type=2.0):
        # the loss is a token sum, the wrapper averages gradients over dp
        num_tokens = num_tokens.clone().float()
        dist.all_reduce(num_tokens, group=self._dp_group)
        num_tokens = torch.clamp(num_tokens / self._dp_size, min=1.0)
        return normalize_and_clip_grad_norm(
            self.model.parameters(),
            num_tokens,
            max_grad_norm=max_grad_norm,
            norm_type=norm_type,
            group=self._dp_group,  # BUG: DDP gradients are complete on every rank, their norm is counted dp times
        )

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
