"""One-forward-one-backward pipeline schedule with data parallelism.

Source: https://github.com/huggingface/picotron/pull/5
Wrong: gradient synchronisation is switched on for the last cooldown backward. The last stage has
no cooldown, so it never reduces its gradients and its data-parallel copies drift apart.
Repair: on a stage without warm-up, switch it on for the last steady-state backward.
"""
import picotron.process_group_manager as pgm
from picotron.pipeline_parallel.pp_communications import bidirectional_pipeline_communicate, pipeline_communicate


def train_step_pipeline_1f1b(model, data_loader, tensor_shapes, device, dtype, forward_step, requires_grad_sync):
    # model.require_backward_grad_sync is read by the gradient hooks during backward
    pp = pgm.process_group_manager
    num_warmup = min(pp.pp_world_size - pp.pp_rank - 1, data_loader.grad_acc_steps)
    num_remaining = data_loader.grad_acc_steps - num_warmup
    inputs, outputs = [], []
    comm = dict(shapes=tensor_shapes, device=device, dtype=dtype)

    for _ in range(num_warmup):
        x = pipeline_communicate("recv_forward", **comm)
        y = forward_step(x)
        pipeline_communicate("send_forward", tensor=y, **comm)
        inputs.append(x)
        outputs.append(y)

    if num_remaining > 0:
        x = pipeline_communicate("recv_forward", **comm)
    if requires_grad_sync:
        model.require_backward_grad_sync = False

    for i in range(num_remaining):
        is_last = i == num_remaining - 1
        y = forward_step(x)
        dy = bidirectional_pipeline_communicate("send_fwd_recv_bwd", send_tensor=y, recv_shapes=tensor_shapes,
                                                device=device, dtype=dtype)
        inputs.append(x)
        outputs.append(y)
        x, y = inputs.pop(0), outputs.pop(0)
        dx = model.backward(x, y, dy)  # BUG: never with synchronisation on the last stage
        if is_last:
            pipeline_communicate("send_backward", tensor=dx, **comm)
        else:
            x = bidirectional_pipeline_communicate("send_bwd_recv_fwd", send_tensor=dx, recv_shapes=tensor_shapes,
                                                   device=device, dtype=dtype)

    for i in range(num_warmup):
        if requires_grad_sync:
            model.require_backward_grad_sync = i == num_warmup - 1
        x, y = inputs.pop(0), outputs.pop(0)
        dy = pipeline_communicate("recv_backward", **comm)
        dx = model.backward(x, y, dy)
        pipeline_communicate("send_backward", tensor=dx, **comm)
