"""An optimizer that splits its states over data parallel: gradients are reduce-scattered, parameters gathered after the step."""

import deepspeed.comm as dist
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class PartitionedOptimizer:
    def __init__(self, optimizer_class, parameters, dp_process_group, mp_process_group=None, clip_grad=0.0, **options):
        self.dp_process_group, self.mp_process_group = dp_process_group, mp_process_group
        self.world_size = dist.get_world_size(group=dp_process_group)
        self.rank = dist.get_rank(group=dp_process_group)
        self.clip_grad = clip_grad
        self.parameters = [p for p in parameters if p.requires_grad]
        flat = self._flatten([p.data for p in self.parameters])
        dist.broadcast(flat, src=dist.get_global_rank(dp_process_group, 0), group=dp_process_group)
        self.flat = flat
        for p, view in zip(self.parameters, _unflatten_dense_tensors(flat[: self.numel], self.parameters)):
            p.data = view
        self.partition = flat.numel() // self.world_size
        start = self.rank * self.partition
        master = flat[start : start + self.partition].detach().clone().float()
        self.master = torch.nn.Parameter(master)
        self.optimizer = optimizer_class([self.master], **options)
        self.overflow = False

    def _flatten(self, tensors):
        flat = _flatten_dense_tensors(tensors)
        self.numel = flat.numel()
        remainder = flat.numel() % self.world_size
        if remainder != 0:
            flat = torch.cat([flat, flat.new_zeros(self.world_size - remainder)])
        return flat

    @torch.no_grad()
    def reduce_gradients(self):
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        flat = self._flatten(grads)
        flat.div_(self.world_size)
        part = torch.empty(self.partition, dtype=flat.dtype, device=flat.device)
        dist.reduce_scatter_tensor(part, flat, group=self.dp_process_group)
        return part

    @torch.no_grad()
    def has_overflow(self, part):
        flag = torch.logical_not(torch.isfinite(part).all()).to(torch.int32).view(1)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.dp_process_group)
        if self.mp_process_group is not None:
            dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.mp_process_group)
        return bool(flag.item())

    @torch.no_grad()
    def grad_norm(self, part):
        total = part.float().pow(2).sum().view(1)
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.dp_process_group)
        if self.mp_process_group is not None:
            dist.all_reduce(total, op=dist.ReduceOp.SUM, group=self.mp_process_group)
        return total.sqrt()

    def backward(self, loss, retain_graph=False):
        loss.float().backward(retain_graph=retain_graph)

    @torch.no_grad()
    def step(self):
        part = self.reduce_gradients()
        self.overflow = self.has_overflow(part)
        if self.overflow:
            self.zero_grad()
            return None
        norm = self.grad_norm(part)
        if self.clip_grad > 0.0:
            part.mul_(torch.clamp(self.clip_grad / (norm + 1e-6), max=1.0))
        self.master.grad = part.float()
        self.optimizer.step()
        self.master.grad = None
        mine = self.flat.narrow(0, self.rank * self.partition, self.partition)
        mine.copy_(self.master.data)
        dist.all_gather_into_tensor(self.flat, mine.clone(), group=self.dp_process_group)
        self.zero_grad()
        return norm

    def zero_grad(self, set_to_none=True):
        for p in self.parameters:
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad.detach_().zero_()
