"""Tensor parallelism for inference and training: linear layers that are replaced, each with its own pair of communications."""

import deepspeed.comm as dist
import torch
import torch.nn as nn
from deepspeed.utils import groups


class RowParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input, is_inference_mode):
        ctx.group = group
        input = input.contiguous()
        if group is None:
            return input
        if is_inference_mode:
            dist.inference_all_reduce(input, group=group)
        else:
            dist.all_reduce(input, group=group)
        return input

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output, None


class ColumnParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input):
        ctx.group = group
        return input

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.group is None:
            return None, grad_output
        grad_output = grad_output.contiguous()
        dist.all_reduce(grad_output, group=ctx.group)
        return None, grad_output


class LinearAllreduce(nn.Module):
    def __init__(self, module, mp_group):
        super().__init__()
        self.mp_group = mp_group
        self.tp_index = dist.get_rank(mp_group)
        self.tp_world_size = dist.get_world_size(mp_group)
        weight = module.weight.data.chunk(self.tp_world_size, dim=1)[self.tp_index]
        self.weight = nn.Parameter(weight.clone().detach())
        setattr(self.weight, "tensor_model_parallel", True)
        self.bias = None
        if module.bias is not None:
            self.bias = nn.Parameter(module.bias.data.clone())
            setattr(self.bias, "ds_is_replaced_module", True)

    def forward(self, input):
        output = torch.matmul(input, self.weight.transpose(-1, -2))
        output = RowParallel.apply(self.mp_group, output, not self.training)
        if self.bias is not None:
            output = output + self.bias
        return output


class LinearLayer(nn.Module):
    def __init__(self, module, mp_group):
        super().__init__()
        self.mp_group = mp_group
        size, index = dist.get_world_size(mp_group), dist.get_rank(mp_group)
        self.weight = nn.Parameter(module.weight.data.chunk(size, dim=0)[index].clone())
        self.bias = nn.Parameter(module.bias.data.chunk(size, dim=0)[index].clone()) if module.bias is not None else None

    def forward(self, input):
        if getattr(self, "mp_group", None) is not None:
            input = ColumnParallel.apply(self.mp_group, input)
        output = torch.matmul(input, self.weight.transpose(-1, -2))
        if self.bias is not None:
            output = output + self.bias
        return output


def replace(model, rows=("o_proj", "down_proj"), columns=("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")):
    group = groups.get_tensor_model_parallel_group()
    for name, child in model.named_children():
        if isinstance(child, nn.Linear) and name in rows:
            setattr(model, name, LinearAllreduce(child, group))
        elif isinstance(child, nn.Linear) and name in columns:
            setattr(model, name, LinearLayer(child, group))
        else:
            replace(child, rows, columns)
    return model


@torch.inference_mode()
def generate(model, tokenizer, prompts, max_new_tokens):
    model = replace(model.eval())
    ids = tokenizer(prompts, return_tensors="pt", padding=True).input_ids.cuda()
    dist.broadcast(ids, src=0)
    for _ in range(max_new_tokens):
        logits = model(ids).logits[:, -1, :]
        ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=-1)
    return tokenizer.batch_decode(ids)
