"""Pipeline schedule: gradients are reduced in the backward pass of the last microbatch.

HabanaAI/Megatron-LM 8b90ee7731cd, megatron/core/pipeline_parallel/schedules.py
"""
import contextlib

import torch
from megatron.core.pipeline_parallel.schedules import (
    backward_step,
    forward_step,
    recv_backward,
    recv_forward,
    send_backward,
    send_forward,
)
from megatron.core.utils import get_model_config
from megatron.model.distributed import DistributedDataParallel as localDDP
from torch.nn.parallel.distributed import DistributedDataParallel as torchDDP


def wrap(module, data_parallel_group):
    # all-reduces a bucket as soon as the backward pass has produced its gradients
    return localDDP(module, data_parallel_group, overlap_grad_reduce=True)


def forward_backward_pipelining_without_interleaving(
    *, forward_step_func, data_iterator, model, num_microbatches, tensor_shapes
):
    config = get_model_config(model)

    # Disable async grad reductions
    no_sync_func = config.no_sync_func
    if no_sync_func is None and isinstance(model, torchDDP):  # BUG
        no_sync_func = model.no_sync
    if no_sync_func is None:
        no_sync_func = contextlib.nullcontext

    no_sync_context = no_sync_func()
    no_sync_context.__enter__()

    losses, inputs, outputs = [], [], []
    for _ in range(num_microbatches):
        input_tensor = recv_forward(tensor_shapes, config)
        output_tensor = forward_step(forward_step_func, data_iterator, model, num_microbatches, input_tensor, losses, config)
        send_forward(output_tensor, tensor_shapes, config)
        inputs.append(input_tensor)
        outputs.append(output_tensor)

    for i in range(num_microbatches):
        # Enable async grad reductions for the last microbatch
        if i == num_microbatches - 1:
            no_sync_context.__exit__(None, None, None)
        output_tensor_grad = recv_backward(tensor_shapes, config)
        input_tensor_grad = backward_step(inputs.pop(0), outputs.pop(0), output_tensor_grad, None, config)
        send_backward(input_tensor_grad, tensor_shapes, config)

    return losses
