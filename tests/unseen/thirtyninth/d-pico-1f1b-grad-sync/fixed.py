"""One-forward-one-backward schedule on top of a bucketed data-parallel wrapper."""
import torch
import torch.nn.functional as F
import picotron.process_group_manager as pgm
from picotron.pipeline_parallel.pp_communications import (
    bidirectional_pipeline_communicate,
    pipeline_communicate,
)


def train_step_pipeline_1f1b(model, data_loader, tensor_shapes, device, dtype):
    # model: DataParallelBucket(PipelineParallel); it all-reduces the accumulated gradients
    # during a backward pass that runs with require_backward_grad_sync = True
    num_micro = data_loader.gradient_accumulation_steps
    stage, world = pgm.process_group_manager.pp_rank, pgm.process_group_manager.pp_world_size
    num_warmup = min(world - stage - 1, num_micro)
    num_remaining = num_micro - num_warmup
    requires_grad_sync = pgm.process_group_manager.cp_dp_world_size > 1
    total_loss, inputs, outputs = 0.0, [], []

    def forward_step(input_tensor):
        nonlocal total_loss
        batch = next(data_loader)
        batch["hidden_states"] = input_tensor
        out = model.forward(batch["input_ids"].to(device), batch["position_ids"].to(device), input_tensor)
        if pgm.process_group_manager.pp_is_last_stage:
            target = batch["target_ids"].to(device).flatten()
            out = F.cross_entropy(out.flatten(0, 1), target, reduction="mean")
            total_loss += out.item() / num_micro
            out = out / num_micro
        return out

    for _ in range(num_warmup):
        x = pipeline_communicate("recv_forward", device=device, dtype=dtype, shapes=tensor_shapes)
        y = forward_step(x)
        pipeline_communicate("send_forward", tensor=y, device=device, dtype=dtype)
        inputs.append(x)
        outputs.append(y)

    if requires_grad_sync:
        model.require_backward_grad_sync = False
    if num_remaining > 0:
        x = pipeline_communicate("recv_forward", device=device, dtype=dtype, shapes=tensor_shapes)
    for i in range(num_remaining):
        is_last = i == num_remaining - 1
        y = forward_step(x)
        grad = bidirectional_pipeline_communicate("send_fwd_recv_bwd", y, tensor_shapes, device, dtype)
        inputs.append(x)
        outputs.append(y)
        x, y = inputs.pop(0), outputs.pop(0)
        if requires_grad_sync:
            model.require_backward_grad_sync = is_last and num_warmup == 0
        input_grad = model.backward(x, y, grad)
        if is_last:
            x = None
            pipeline_communicate("send_backward", tensor=input_grad, device=device, dtype=dtype)
        else:
            x = bidirectional_pipeline_communicate("send_bwd_recv_fwd", input_grad, tensor_shapes, device, dtype)

    for i in range(num_warmup):
        if requires_grad_sync:
            model.require_backward_grad_sync = i == num_warmup - 1
        x, y = inputs.pop(0), outputs.pop(0)
        grad = pipeline_communicate("recv_backward", shapes=tensor_shapes, device=device, dtype=dtype)
        input_grad = model.backward(x, y, grad)
        pipeline_communicate("send_backward", tensor=input_grad, device=device, dtype=dtype)
    return total_loss
