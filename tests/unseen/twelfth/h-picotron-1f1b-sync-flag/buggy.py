"""1F1B schedule with data parallelism; the wrapper reduces gradients when require_backward_grad_sync is set."""
import torch
from picotron.pipeline_parallel.pp_communications import (
    bidirectional_pipeline_communicate,
    pipeline_communicate,
)


def train_step_pipeline_1f1b(model, forward_step, num_microbatches, pp_rank, pp_size, shapes, device, dtype):
    num_warmup = min(pp_size - pp_rank - 1, num_microbatches)
    num_steady = num_microbatches - num_warmup
    inputs, outputs = [], []
    model.require_backward_grad_sync = False

    for _ in range(num_warmup):
        x = pipeline_communicate("recv_forward", device, dtype, shapes=shapes)
        y = forward_step(x)
        pipeline_communicate("send_forward", device, dtype, tensor=y)
        inputs.append(x)
        outputs.append(y)

    if num_steady > 0:
        x = pipeline_communicate("recv_forward", device, dtype, shapes=shapes)
    for i in range(num_steady):
        is_last = i == num_steady - 1
        y = forward_step(x)
        dy = bidirectional_pipeline_communicate("send_fwd_recv_bwd", y, shapes, device, dtype)
        inputs.append(x)
        outputs.append(y)
        model.require_backward_grad_sync = False  # BUG: a stage without cooldown never reduces its gradients
        dx = model.backward(inputs.pop(0), outputs.pop(0), dy)
        if is_last:
            pipeline_communicate("send_backward", device, dtype, tensor=dx)
        else:
            x = bidirectional_pipeline_communicate("send_bwd_recv_fwd", dx, shapes, device, dtype)

    for i in range(num_warmup):
        model.require_backward_grad_sync = i == num_warmup - 1
        dy = pipeline_communicate("recv_backward", device, dtype, shapes=shapes)
        dx = model.backward(inputs.pop(0), outputs.pop(0), dy)
        pipeline_communicate("send_backward", device, dtype, tensor=dx)
