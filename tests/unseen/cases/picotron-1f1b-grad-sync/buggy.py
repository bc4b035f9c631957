"""1F1B schedule with data parallelism: gradients are synchronised in the last backward only."""
# huggingface/picotron PR 5: the flag was switched on only in the cooldown, which the last stage does not have.
import torch
import torch.distributed as dist


class DataParallel(torch.nn.Module):
    def __init__(self, module, dp_group):
        super().__init__()
        self.module = module
        self.dp_group = dp_group
        self.require_backward_grad_sync = True
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._allreduce_grads)

    def _allreduce_grads(self, param):
        if self.require_backward_grad_sync:
            dist.all_reduce(param.grad, group=self.dp_group)
            param.grad /= dist.get_world_size(self.dp_group)

    def forward(self, *inputs):
        return self.module(*inputs)


def send_forward_recv_backward(output, shapes, group): ...


def recv_forward(shapes, group): ...


def send_backward(grad, group): ...


def recv_backward(shapes, group): ...


def forward_step(model, data_loader, input_tensor):
    batch = next(data_loader)
    return model(batch["input_ids"] if input_tensor is None else input_tensor)


def backward_step(model, input_tensor, output_tensor, output_grad):
    if input_tensor is not None:
        input_tensor.retain_grad()
    torch.autograd.backward(output_tensor, grad_tensors=output_grad, retain_graph=False, create_graph=False)
    return input_tensor.grad if input_tensor is not None else None


def train_step_pipeline_1f1b(model: DataParallel, data_loader, shapes, pp_rank, pp_size, pp_group, num_microbatches):
    num_warmup = min(pp_size - pp_rank - 1, num_microbatches)
    num_remaining = num_microbatches - num_warmup
    inputs, outputs = [], []

    for _ in range(num_warmup):
        x = recv_forward(shapes, pp_group)
        y = forward_step(model, data_loader, x)
        send_forward_recv_backward(y, None, pp_group)
        inputs.append(x)
        outputs.append(y)

    model.require_backward_grad_sync = False
    for i in range(num_remaining):
        is_last_iteration = i == num_remaining - 1
        x = recv_forward(shapes, pp_group)
        y = forward_step(model, data_loader, x)
        grad = send_forward_recv_backward(y, shapes, pp_group)
        inputs.append(x)
        outputs.append(y)
        x, y = inputs.pop(0), outputs.pop(0)
        send_backward(backward_step(model, x, y, grad), pp_group)  # BUG: without warmup this is the last backward, and it does not sync

    for i in range(num_warmup):
        model.require_backward_grad_sync = i == num_warmup - 1
        x, y = inputs.pop(0), outputs.pop(0)
        grad = recv_backward(shapes, pp_group)
        send_backward(backward_step(model, x, y, grad), pp_group)


def train(model, data_loader, optimizer, dp_group, shapes, pp_group, num_microbatches):
    model = DataParallel(model, dp_group)
    pp_rank, pp_size = dist.get_rank(pp_group), dist.get_world_size(pp_group)
    optimizer.zero_grad()
    train_step_pipeline_1f1b(model, data_loader, shapes, pp_rank, pp_size, pp_group, num_microbatches)
    optimizer.step()
