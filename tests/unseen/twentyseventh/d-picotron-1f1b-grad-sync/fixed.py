"""1F1B pipeline step on top of a data-parallel wrapper (one stage per pipeline rank)."""
import torch
from picotron.pipeline_parallel.pp_communications import pipeline_communicate
from picotron import process_group_manager as pgm


def train_step_1f1b(model, data_loader, shapes, device, dtype):
    # model.require_backward_grad_sync: backward hooks all-reduce the gradients of this stage
    steps = data_loader.grad_acc_steps
    num_warmup = min(pgm.pp_world_size - pgm.pp_rank - 1, steps)
    num_remaining = steps - num_warmup
    inputs, outputs, logging_loss = [], [], 0.0

    def forward():
        x = pipeline_communicate("recv_forward", device, dtype, shapes=shapes)
        batch = next(data_loader)
        out = model(batch["input_ids"], batch["position_ids"], hidden_states=x)
        if pgm.pp_is_last_stage:
            out = torch.nn.functional.cross_entropy(out.flatten(0, 1), batch["target_ids"].flatten())
            out = out / steps
        inputs.append(x)
        outputs.append(out)
        pipeline_communicate("send_forward", device, dtype, tensor=out)
        return out.item() if pgm.pp_is_last_stage else 0.0

    def backward():
        x, out = inputs.pop(0), outputs.pop(0)
        grad = pipeline_communicate("recv_backward", device, dtype, shapes=shapes)
        input_grad = model.backward(x, out, grad)
        pipeline_communicate("send_backward", device, dtype, tensor=input_grad)

    model.require_backward_grad_sync = False
    for _ in range(num_warmup):
        forward()
    for i in range(num_remaining):
        logging_loss += forward()
        model.require_backward_grad_sync = num_warmup == 0 and i == num_remaining - 1
        backward()
    for i in range(num_warmup):
        model.require_backward_grad_sync = i == num_warmup - 1
        backward()
    return logging_loss
