"""Gradient synchronisation of a training iteration: tied parameters first, then data parallel, clipping with a norm over model parallel."""

import torch
from nanotron import distributed as dist
from nanotron.parallel import ParallelContext
from nanotron.parallel.tensor_parallel.enum import TensorParallelLinearMode
from nanotron.parallel.tied_parameters import get_tied_id_to_param


class Accumulator:
    """Accumulates gradients in float32, and sums them over data parallel once per step."""

    def __init__(self, named_parameters, dp_pg):
        self.dp_pg = dp_pg
        self.parameters = dict(named_parameters)
        self.buffers = {n: torch.zeros_like(p, dtype=torch.float32) for n, p in self.parameters.items() if p.requires_grad}

    def backward(self, loss):
        loss.backward()
        for name, buffer in self.buffers.items():
            param = self.parameters[name]
            if param.grad is None:
                continue
            buffer.add_(param.grad.to(torch.float32))
            param.grad = None

    def sync(self):
        handles = [dist.all_reduce(b, op=dist.ReduceOp.AVG, group=self.dp_pg, async_op=True) for b in self.buffers.values()]
        for handle in handles:
            handle.wait()


def sync_tied_gradients(module, accumulator, parallel_context: ParallelContext, tp_mode):
    """Parameters that are not split are tied over the tensor-parallel ranks: their gradients are partial in reduce-scatter mode only."""
    if tp_mode is TensorParallelLinearMode.ALL_REDUCE:
        return
    tied = get_tied_id_to_param(
        parameters=[p for p in module.parameters() if p.requires_grad and p.is_tied], root_module=module
    )
    names = {id(p): name for name, p in module.named_parameters()}
    for (name, ranks), param in sorted(tied.items(), key=lambda item: item[0]):
        info = param.get_tied_info()
        if info.reduce_op is None:
            continue
        group = parallel_context.world_ranks_to_pg[ranks]
        dist.all_reduce(accumulator.buffers[names[id(param)]], op=info.reduce_op, group=group)


@torch.no_grad()
def clip_grad_norm(accumulator, mp_pg, max_norm, norm_type=2.0):
    grads = []
    for name, param in accumulator.parameters.items():
        if param.is_tied and dist.get_rank(mp_pg) != param.get_tied_info().global_ranks[0]:
            continue
        grads.append(accumulator.buffers[name])
    if norm_type == torch.inf:
        total = torch.max(torch.stack([g.abs().max() for g in grads]))
        dist.all_reduce(total, group=mp_pg, op=dist.ReduceOp.MAX)
    else:
        total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g, ord=norm_type) for g in grads]), ord=norm_type)
        total = total.pow(norm_type)
        dist.all_reduce(total, group=mp_pg, op=dist.ReduceOp.SUM)
        total.pow_(1.0 / norm_type)
    coefficient = torch.clamp(max_norm / (total + 1.0e-6), max=1.0)
    for buffer in accumulator.buffers.values():
        buffer.mul_(coefficient)
    return total


def training_step(model, micro_batches, accumulator, optimizer, parallel_context: ParallelContext, config):
    losses = []
    for micro_batch in micro_batches:
        loss = model(**micro_batch)["loss"] / len(micro_batches)
        accumulator.backward(loss)
        losses.append(loss.detach())
    sync_tied_gradients(model, accumulator, parallel_context, config.tp_mode)
    accumulator.sync()
    norm = clip_grad_norm(accumulator, parallel_context.mp_pg, config.clip_grad)
    for name, param in accumulator.parameters.items():
        if param.requires_grad:
            param.grad = accumulator.buffers[name].to(param.dtype)
    optimizer.step()
    for buffer in accumulator.buffers.values():
        buffer.zero_()
    shown = torch.stack(losses).sum()
    dist.all_reduce(shown, group=parallel_context.dp_pg, op=dist.ReduceOp.AVG)
    return shown.item(), norm.item()
