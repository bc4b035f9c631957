# huggingface/picotron pull request 5 (commit 7996a31)
"""One-forward-one-backward schedule combined with data parallelism."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class DataParallel(nn.Module):
    def __init__(self, module, cp_dp_group):
        super().__init__()
        self.module, self.cp_dp_group = module, cp_dp_group
        self.require_backward_grad_sync = True

    def forward(self, batch):
        return self.module(batch)

    def backward(self, input_tensor, output_tensor, output_tensor_grad):
        if output_tensor_grad is None:
            output_tensor_grad = torch.ones_like(output_tensor)
        torch.autograd.backward(output_tensor, grad_tensors=output_tensor_grad)
        if self.require_backward_grad_sync:
            for p in self.module.parameters():
                dist.all_reduce(p.grad, group=self.cp_dp_group)
                p.grad.div_(dist.get_world_size(self.cp_dp_group))
        return input_tensor.grad if input_tensor is not None else None


def train_step_pipeline_1f1b(model, data_loader, comm, pp_rank, pp_world_size):
    """comm: point-to-point calls to the neighbour stages; they return None outside of the pipeline."""
    grad_acc_steps = data_loader.grad_acc_steps
    num_warmup = min(pp_world_size - pp_rank - 1, grad_acc_steps)
    num_remaining = grad_acc_steps - num_warmup
    input_tensors, output_tensors, losses = [], [], []

    def forward_step(input_tensor):
        batch = next(data_loader)
        batch["hidden_states"] = input_tensor
        output_tensor = model(batch)
        if pp_rank == pp_world_size - 1:
            loss = F.cross_entropy(output_tensor.transpose(1, 2), batch["target_ids"])
            output_tensor = loss / grad_acc_steps
            losses.append(output_tensor.detach())
        input_tensors.append(input_tensor)
        output_tensors.append(output_tensor)
        return output_tensor

    for _ in range(num_warmup):
        comm.send_forward(forward_step(comm.recv_forward()))

    for i in range(num_remaining):
        output_tensor = forward_step(comm.recv_forward())
        output_tensor_grad = comm.send_forward_recv_backward(output_tensor)
        model.require_backward_grad_sync = num_warmup == 0 and i == num_remaining - 1
        input_tensor_grad = model.backward(input_tensors.pop(0), output_tensors.pop(0), output_tensor_grad)
        comm.send_backward(input_tensor_grad)

    for i in range(num_warmup):
        output_tensor_grad = comm.recv_backward()
        model.require_backward_grad_sync = i == num_warmup - 1
        input_tensor_grad = model.backward(input_tensors.pop(0), output_tensors.pop(0), output_tensor_grad)
        comm.send_backward(input_tensor_grad)
    return losses
