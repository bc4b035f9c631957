"""Forward and backward schedule without pipelining, on a DeepSpeed engine."""
# thread: deepspeedai/Megatron-DeepSpeed#42
import torch

from megatron import get_args, get_num_microbatches, get_timers, mpu
from megatron.utils import unwrap_model


def forward_step(forward_step_func, data_iterator, model, input_tensor, losses_reduced):
    """Forward of one stage. The last stage turns its output into the loss of a microbatch.

    With --no-pipeline-parallel the model is a DeepSpeedEngine.
    """
    args = get_args()
    timers = get_timers()
    timers("forward-compute").start()
    unwrapped_model = unwrap_model(model)
    if not args.deepspeed:
        unwrapped_model.set_input_tensor(input_tensor)

    output_tensor, loss_func = forward_step_func(data_iterator, model)
    if mpu.is_pipeline_last_stage():
        loss, loss_reduced = loss_func(output_tensor)
        output_tensor = loss / get_num_microbatches()  # BUG: the engine's backward divides by the same number again
        losses_reduced.append(loss_reduced)
    timers("forward-compute").stop()
    return output_tensor


def backward_step(optimizer, input_tensor, output_tensor, output_tensor_grad, model=None):
    args = get_args()
    timers = get_timers()
    timers("backward-compute").start()
    if args.deepspeed:
        # the engine scales the loss by 1 / gradient_accumulation_steps
        assert model is not None
        model.backward(output_tensor)
    else:
        if output_tensor_grad is None:
            output_tensor = optimizer.scale_loss(output_tensor)
        torch.autograd.backward(output_tensor, grad_tensors=output_tensor_grad)
    timers("backward-compute").stop()
    return input_tensor.grad if input_tensor is not None else None


def forward_backward_no_pipelining(forward_step_func, data_iterator, model, optimizer, forward_only):
    """gradient_accumulation_steps of the engine equals get_num_microbatches()."""
    args = get_args()
    model = model[0]
    losses_reduced = []
    num_microbatches = get_num_microbatches()
    for i in range(num_microbatches):
        if args.deepspeed:
            model.set_gradient_accumulation_boundary(i == num_microbatches - 1)
        output_tensor = forward_step(forward_step_func, data_iterator, model, None, losses_reduced)
        if not forward_only:
            backward_step(optimizer, None, output_tensor, None, model)
    return losses_reduced
