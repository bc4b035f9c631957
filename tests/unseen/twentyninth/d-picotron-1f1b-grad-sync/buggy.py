"""One-forward-one-backward schedule with data parallelism; DataParallel reduces in the backward pass when asked to."""
import picotron.process_group_manager as pgm
import torch.nn.functional as F
from picotron.pipeline_parallel.pp_communications import bidirectional_pipeline_communicate as exchange
from picotron.pipeline_parallel.pp_communications import pipeline_communicate as communicate


def forward_step(model, data_loader, input_tensor, device):
    batch = next(data_loader)
    output = model(input_ids=batch["input_ids"].to(device), hidden_states=input_tensor)
    if pgm.process_group_manager.pp_is_last_stage:
        output = F.cross_entropy(output.transpose(1, 2), batch["target_ids"].to(device)) / data_loader.grad_acc_steps
    return output


def train_step_pipeline_1f1b(model, data_loader, tensor_shapes, device, dtype):
    pg = pgm.process_group_manager
    num_warmup = min(pg.pp_world_size - pg.pp_rank - 1, data_loader.grad_acc_steps)
    num_remaining = data_loader.grad_acc_steps - num_warmup
    inputs, outputs, logging_loss = [], [], 0.0
    requires_grad_sync = pg.cp_dp_world_size > 1

    for _ in range(num_warmup):
        input_tensor = communicate("recv_forward", device, dtype, shapes=tensor_shapes)
        output = forward_step(model, data_loader, input_tensor, device)
        communicate("send_forward", device, dtype, tensor=output)
        inputs.append(input_tensor)
        outputs.append(output)

    if num_remaining > 0:
        input_tensor = communicate("recv_forward", device, dtype, shapes=tensor_shapes)
    if requires_grad_sync:
        model.require_backward_grad_sync = False

    for i in range(num_remaining):
        is_last = i == num_remaining - 1
        output = forward_step(model, data_loader, input_tensor, device)
        if pg.pp_is_last_stage:
            logging_loss += output.item()
        output_grad = exchange("send_fwd_recv_bwd", output, tensor_shapes, device, dtype)
        inputs.append(input_tensor)
        outputs.append(output)
        input_grad = model.backward(inputs.pop(0), outputs.pop(0), output_grad)  # BUG
        if is_last:
            communicate("send_backward", device, dtype, tensor=input_grad)
        else:
            input_tensor = exchange("send_bwd_recv_fwd", input_grad, tensor_shapes, device, dtype)

    for i in range(num_warmup):
        if requires_grad_sync:
            model.require_backward_grad_sync = i == num_warmup - 1
        output_grad = communicate("recv_backward", device, dtype, shapes=tensor_shapes)
        input_grad = model.backward(inputs.pop(0), outputs.pop(0), output_grad)
        communicate("send_backward", device, dtype, tensor=input_grad)
    return logging_loss
