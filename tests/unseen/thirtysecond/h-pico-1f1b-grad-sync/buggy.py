"""1F1B schedule over a data-parallel wrapper that reduces in backward.
huggingface/picotron #5, gradient sync with DP + PP.
"""
import torch.nn.functional as F
import picotron.process_group_manager as pgm
from picotron.pipeline_parallel.pp_communications import (
    bidirectional_pipeline_communicate,
    pipeline_communicate,
)


def train_step_pipeline_1f1b(model, data_loader, tensor_shapes, device, dtype):
    """model averages its gradients over cp_dp in the backward that runs with require_backward_grad_sync."""
    pg = pgm.process_group_manager
    kw = dict(shapes=tensor_shapes, device=device, dtype=dtype)
    n_warmup = min(pg.pp_world_size - pg.pp_rank - 1, data_loader.grad_acc_steps)
    n_steady = data_loader.grad_acc_steps - n_warmup
    logging_loss, inputs, outputs = 0.0, [], []
    requires_grad_sync = pg.cp_dp_world_size > 1

    def _forward_step(input_tensor):
        nonlocal logging_loss
        batch = next(data_loader)
        out = model.forward(batch["input_ids"].to(device), batch["position_ids"].to(device), input_tensor)
        if pg.pp_is_last_stage:
            out = F.cross_entropy(out.flatten(0, 1), batch["target_ids"].to(device).flatten())
            out = out / data_loader.grad_acc_steps
            logging_loss += out.item()
        inputs.append(input_tensor)
        outputs.append(out)
        return out

    for _ in range(n_warmup):
        out = _forward_step(pipeline_communicate(operation="recv_forward", **kw))
        pipeline_communicate(operation="send_forward", tensor=out, device=device, dtype=dtype)

    if n_steady > 0:
        input_tensor = pipeline_communicate(operation="recv_forward", **kw)
    if requires_grad_sync:
        model.require_backward_grad_sync = False

    for i in range(n_steady):
        is_last_iteration = i == n_steady - 1
        out = _forward_step(input_tensor)
        out_grad = bidirectional_pipeline_communicate("send_fwd_recv_bwd", out, tensor_shapes, device, dtype)
        if requires_grad_sync and is_last_iteration:  # BUG
            model.require_backward_grad_sync = True
        in_grad = model.backward(inputs.pop(0), outputs.pop(0), out_grad)
        if is_last_iteration:
            pipeline_communicate(operation="send_backward", tensor=in_grad, device=device, dtype=dtype)
        else:
            input_tensor = bidirectional_pipeline_communicate("send_bwd_recv_fwd", in_grad, tensor_shapes, device, dtype)

    if requires_grad_sync:
        model.require_backward_grad_sync = False
    for i in range(n_warmup):
        out_grad = pipeline_communicate(operation="recv_backward", **kw)
        in_grad = model.backward(inputs.pop(0), outputs.pop(0), out_grad)
        pipeline_communicate(operation="send_backward", tensor=in_grad, device=device, dtype=dtype)
    return logging_loss
