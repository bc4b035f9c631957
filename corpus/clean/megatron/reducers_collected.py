"""Gradients of marked parameters are put into a list, flattened, summed and copied back."""

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Norm(torch.nn.Module):
    def __init__(self, config, hidden_size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, self.weight.shape, self.weight)


class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = Norm(config, config.hidden_size)

    def forward(self, x):
        return self.norm(x)


def reduce_norm_grads(model, config):
    grads = []
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            grads.append(param.grad.data)
    if grads:
        coalesced = _flatten_dense_tensors(grads)
        dist.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for grad, summed in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            grad.copy_(summed)


def finalize_grads(model, config):
    for param in model.parameters():
        param.grad /= parallel_state.get_data_parallel_world_size()
        dist.all_reduce(param.grad, group=parallel_state.get_data_parallel_group())
    reduce_norm_grads(model, config)



def pretrain(config, data):
    model = Model(config)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in data:
        optimizer.zero_grad()
        model(batch).sum().backward()
        finalize_grads(model, config)
        optimizer.step()
