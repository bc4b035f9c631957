"""Gradients of norms under sequence parallelism, summed over tp in one flat buffer before the step."""
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from megatron.core import parallel_state


class Norm(torch.nn.Module):
    def __init__(self, hidden, eps=1e-6, sequence_parallel=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden))
        self.eps = eps
        setattr(self.weight, "sequence_parallel", sequence_parallel)

    def forward(self, x):
        var = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(var + self.eps)).type_as(x) * self.weight


def _grad(p):
    return p.main_grad if hasattr(p, "main_grad") else p.grad


def allreduce_norm_grads(model_chunks, config):
    if parallel_state.get_tensor_model_parallel_world_size() == 1:
        return
    if not (config.sequence_parallel or config.qk_layernorm):
        return
    grads = []
    for chunk in model_chunks:
        for name, p in chunk.named_parameters():
            if not p.requires_grad:
                continue
            if getattr(p, "sequence_parallel", False) or "q_layernorm" in name or "k_layernorm" in name:
                grads.append(_grad(p).data)
    if grads:
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat, group=parallel_state.get_tensor_model_parallel_group())
        for buf, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
            buf.copy_(synced)


def finalize(model_chunks, config):
    for chunk in model_chunks:
        chunk.finish_grad_sync()
    allreduce_norm_grads(model_chunks, config)


def train_step(forward_backward, data, model_chunks, optimizer, config):
    for chunk in model_chunks:
        chunk.zero_grad_buffer()
    losses = forward_backward(data, model_chunks)
    finalize(model_chunks, config)
    optimizer.step()
    return losses
