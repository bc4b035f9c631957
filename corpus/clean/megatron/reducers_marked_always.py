"""A mark that is always set, and a finaliser that looks for it under sequence parallelism only: without it the gradient is whole."""

import torch
import torch.distributed as dist
from megatron.core import parallel_state


class Norm(torch.nn.Module):
    def __init__(self, config, hidden_size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.weight.sequence_parallel = True

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, self.weight.shape, self.weight)


class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = Norm(config, config.hidden_size)

    def forward(self, x):
        return self.norm(x)


def reduce_norm_grads(model, config):
    if not config.sequence_parallel:
        return
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.grad, group=parallel_state.get_tensor_model_parallel_group())


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
