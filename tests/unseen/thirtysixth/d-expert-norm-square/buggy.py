# thread: https://github.com/laekov/fastmoe/pull/65
"""Gradient clipping for a Megatron model whose experts live on different data-parallel ranks."""
import torch
import torch.distributed as dist
from megatron import mpu


def param_is_not_shared(param) -> bool:
    return not getattr(param, "shared", False)


def param_is_not_tensor_parallel_duplicate(param) -> bool:
    tensor_parallel = getattr(param, "tensor_model_parallel", False)
    return tensor_parallel or mpu.get_tensor_model_parallel_rank() == 0


def is_expert(param) -> bool:
    """Set by DistributedGroupedDataParallel.mark_parallel_comm."""
    return getattr(param, "dp_comm", "dp") == "none"


def l2_norm(grads) -> torch.Tensor:
    if not grads:
        return torch.zeros(1, device="cuda")
    return torch.norm(torch.stack([torch.norm(g.float(), 2) for g in grads]), 2).view(1)


def clip_grad_norm_fp32(parameters, max_norm, norm_type=2):
    """Gradients of dense parameters are equal on all data-parallel ranks, those of experts are not."""
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]

    grads, grads_for_norm, grads_in_moe = [], [], []
    for param in parameters:
        if param.grad is None:
            continue
        assert param.grad.type() == "torch.cuda.FloatTensor"
        grad = param.grad.detach()
        grads.append(grad)
        if not param_is_not_shared(param):
            continue
        if is_expert(param):
            grads_in_moe.append(grad)
        elif param_is_not_tensor_parallel_duplicate(param):
            grads_for_norm.append(grad)

    max_norm = float(max_norm)
    norm_type = float(norm_type)

    if norm_type == float("inf"):
        candidates = [g.abs().max() for g in grads_for_norm + grads_in_moe]
        total = torch.stack(candidates).max().view(1)
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
        total_norm = total.item()
    else:
        assert norm_type == 2.0
        total = l2_norm(grads_for_norm) ** 2
        moe_norm = l2_norm(grads_in_moe)
        dist.all_reduce(moe_norm, group=mpu.get_data_parallel_group())  # BUG
        total += moe_norm**2
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=mpu.get_model_parallel_group())
        total_norm = total.item() ** 0.5

    clip_coeff = max_norm / (total_norm + 1.0e-6)
    if clip_coeff < 1.0:
        for grad in grads:
            grad.mul_(clip_coeff)
    return total_norm


class FP32Optimizer:
    def __init__(self, optimizer, clip_grad):
        self.optimizer, self.clip_grad = optimizer, clip_grad

    def zero_grad(self):
        self.optimizer.zero_grad()

    def get_parameters(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self):
        grad_norm = None
        if self.clip_grad > 0.0:
            grad_norm = clip_grad_norm_fp32(self.get_parameters(), self.clip_grad)
        self.optimizer.step()
        return True, grad_norm


def train_step(forward_backward_func, forward_step_func, data_iterator, model, optimizer, lr_scheduler, args):
    optimizer.zero_grad()
    losses = forward_backward_func(forward_step_func, data_iterator, model, optimizer)
    model.allreduce_params()
    ok, grad_norm = optimizer.step()
    if ok:
        lr_scheduler.step(args.micro_batch_size * args.data_parallel_size)
    return losses, grad_norm
