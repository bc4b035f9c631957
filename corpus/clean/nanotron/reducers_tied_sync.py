"""The gradients of tied parameters are reduced in the order of their names, so that no two ranks wait for each other."""

from collections import OrderedDict

import torch
from nanotron import distributed as dist
from nanotron.parallel.parameters import NanotronParameter


def tied_parameters(module):
    tied = OrderedDict()
    for _, param in sorted(module.named_parameters(), key=lambda item: item[0]):
        if isinstance(param, NanotronParameter) and param.is_tied and param.requires_grad:
            info = param.get_tied_info()
            tied.setdefault((info.name, info.global_ranks, info.reduce_op), param)
    return tied


def sync_tied_weights_gradients(module, parallel_context, grad_accumulator=None):
    names = {id(param): name for name, param in module.named_parameters()}
    pending = {}
    for (_, ranks, reduce_op), param in tied_parameters(module).items():
        if reduce_op is None:
            continue
        if grad_accumulator is not None:
            tensor = grad_accumulator.get_grad_buffer(name=names[id(param)])
        else:
            tensor = param.grad
        key = (parallel_context.world_ranks_to_pg[ranks], reduce_op)
        pending.setdefault(key, []).append(tensor)
    for (group, reduce_op), tensors in pending.items():
        dist.all_reduce_coalesced(tensors=tensors, op=reduce_op, group=group)


@torch.no_grad()
def check_tied_weights(module, parallel_context):
    """All copies are equal at the start: the extremes over ranks are the same."""
    for (_, ranks, _), param in tied_parameters(module).items():
        group = parallel_context.world_ranks_to_pg[ranks]
        low, high = param.detach().clone(), param.detach().clone()
        dist.all_reduce(low, op=dist.ReduceOp.MIN, group=group)
        dist.all_reduce(high, op=dist.ReduceOp.MAX, group=group)
        torch.testing.assert_close(low, high, atol=0, rtol=0)


def iteration(model, micro_batches, optimizer, parallel_context):
    outputs = []
    for micro_batch in micro_batches:
        loss = model(**micro_batch)["loss"] / len(micro_batches)
        loss.backward()
        outputs.append(loss.detach())
    sync_tied_weights_gradients(model, parallel_context)
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=parallel_context.dp_pg)
    optimizer.step()
    optimizer.zero_grad()
    # Only the mean is shown; a handle that is waited for at once.
    loss_avg = torch.stack(outputs).sum()
    handle = dist.all_reduce(loss_avg, group=parallel_context.dp_pg, async_op=True, op=dist.ReduceOp.AVG)
    handle.wait()
    return loss_avg
