# huggingface/picotron, pull request 5 - https://github.com/huggingface/picotron/pull/5 (read, also the file)
# 1F1B with data parallelism: gradient sync is only switched on in the cool-down loop. The last pipeline
# stage has no warm-up micro batches, never runs that loop and never reduces its gradients over DP.
"""1F1B schedule; each stage is wrapped in picotron's DataParallel (hooks read require_backward_grad_sync)."""
import picotron.process_group_manager as pgm
from picotron.pipeline_parallel.pp_communications import (
    bidirectional_pipeline_communicate,
    pipeline_communicate,
)


def train_step_pipeline_1f1b(model, forward_step, grad_acc_steps, shapes, device, dtype):
    pg = pgm.process_group_manager
    num_warmup = min(pg.pp_world_size - pg.pp_rank - 1, grad_acc_steps)
    num_remaining = grad_acc_steps - num_warmup
    comm = dict(device=device, dtype=dtype)
    inputs, outputs = [], []

    for _ in range(num_warmup):
        x = pipeline_communicate(operation="recv_forward", shapes=shapes, **comm)
        out = forward_step(x)
        pipeline_communicate(operation="send_forward", tensor=out, **comm)
        inputs.append(x), outputs.append(out)

    x = pipeline_communicate(operation="recv_forward", shapes=shapes, **comm) if num_remaining > 0 else None
    model.require_backward_grad_sync = False
    for i in range(num_remaining):
        last = i == num_remaining - 1
        out = forward_step(x)
        grad = bidirectional_pipeline_communicate(
            operation="send_fwd_recv_bwd", send_tensor=out, recv_shapes=shapes, **comm
        )
        inputs.append(x), outputs.append(out)
        in_grad = model.backward(inputs.pop(0), outputs.pop(0), grad)  # BUG: no sync when num_warmup == 0
        if last:
            pipeline_communicate(operation="send_backward", tensor=in_grad, **comm)
        else:
            x = bidirectional_pipeline_communicate(
                operation="send_bwd_recv_fwd", send_tensor=in_grad, recv_shapes=shapes, **comm
            )

    for i in range(num_warmup):
        model.require_backward_grad_sync = i == num_warmup - 1
        grad = pipeline_communicate(operation="recv_backward", shapes=shapes, **comm)
        in_grad = model.backward(inputs.pop(0), outputs.pop(0), grad)
        pipeline_communicate(operation="send_backward", tensor=in_grad, **comm)
