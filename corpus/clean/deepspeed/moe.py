"""Mixture of experts with a capacity: gate, dispatch by einsum and all-to-all, experts that are not reduced over data parallel."""

import copy

import deepspeed.comm as dist
import torch
import torch.nn.functional as F
from deepspeed.utils import groups
from torch import nn


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input):
        ctx.group = group
        input = input.contiguous()
        output = torch.empty_like(input)
        dist.all_to_all_single(output, input, group=group)
        return output

    @staticmethod
    def backward(ctx, *grad_output):
        return (None, _AllToAll.apply(ctx.group, *grad_output))


def top1gating(logits, capacity_factor, min_capacity, used_token=None):
    gates = F.softmax(logits, dim=1)
    num_tokens, num_experts = gates.shape
    capacity = max(int(num_tokens / num_experts * capacity_factor), min_capacity)
    indices1_s = torch.argmax(gates, dim=1)
    mask1 = F.one_hot(indices1_s, num_classes=num_experts)
    if used_token is not None:
        mask1 = torch.einsum("s,se->se", used_token, mask1)
    exp_counts = torch.sum(mask1, dim=0).detach().to("cpu")

    me = torch.mean(gates, dim=0)
    ce = torch.mean(mask1.float(), dim=0)
    l_aux = torch.sum(me * ce) * num_experts

    locations1 = torch.cumsum(mask1, dim=0) - 1
    mask1 = mask1 * torch.lt(locations1, capacity)
    locations1_s = torch.sum(locations1 * mask1, dim=1)
    gates = gates * mask1.float()
    locations1_sc = F.one_hot(locations1_s, num_classes=capacity).float()
    combine_weights = torch.einsum("se,sc->sec", gates, locations1_sc)
    return l_aux, combine_weights, combine_weights.bool(), exp_counts


class Experts(nn.Module):
    def __init__(self, expert, num_local_experts, expert_group_name):
        super().__init__()
        self.deepspeed_experts = nn.ModuleList([copy.deepcopy(expert) for _ in range(num_local_experts)])
        for expert in self.deepspeed_experts:
            for param in expert.parameters():
                param.allreduce = False
                param.group_name = expert_group_name

    def forward(self, inputs):
        chunks = inputs.chunk(len(self.deepspeed_experts), dim=1)
        outputs = []
        for chunk, expert in zip(chunks, self.deepspeed_experts):
            out = expert(chunk)
            if isinstance(out, tuple):
                out = out[0]
            outputs.append(out)
        return torch.cat(outputs, dim=1)


class MoE(nn.Module):
    def __init__(self, hidden_size, expert, num_experts, ep_size, capacity_factor=1.0, min_capacity=4, use_residual=False):
        super().__init__()
        assert num_experts % ep_size == 0
        self.ep_size = ep_size
        self.num_local_experts = num_experts // ep_size
        self.expert_group_name = f"ep_size_{ep_size}"
        self.capacity_factor, self.min_capacity = capacity_factor, min_capacity
        self.use_residual = use_residual
        self.wg = nn.Linear(hidden_size, num_experts, bias=False)
        self.experts = Experts(expert, self.num_local_experts, self.expert_group_name)
        if use_residual:
            self.mlp = expert
            self.coefficient = nn.Linear(hidden_size, 2)
        self.ep_group = None

    def set_deepspeed_parallelism(self):
        self.ep_group = groups._get_expert_parallel_group(self.expert_group_name)

    def forward(self, hidden_states, used_token=None):
        d_model = hidden_states.shape[-1]
        reshaped = hidden_states.reshape(-1, d_model)
        logits = self.wg(reshaped.float())
        l_aux, combine, mask, exp_counts = top1gating(logits, self.capacity_factor, self.min_capacity, used_token)
        dispatched = torch.einsum("sec,sm->ecm", mask.type_as(hidden_states), reshaped)
        dispatched = _AllToAll.apply(self.ep_group, dispatched)
        dispatched = dispatched.reshape(self.ep_size, self.num_local_experts, -1, d_model)
        out = self.experts(dispatched)
        out = _AllToAll.apply(self.ep_group, out)
        out = out.reshape(self.ep_size * self.num_local_experts, -1, d_model)
        output = torch.einsum("sec,ecm->sm", combine.type_as(hidden_states), out).reshape(hidden_states.shape)
        if self.use_residual:
            mlp_out = self.mlp(hidden_states)
            coef = F.softmax(self.coefficient(hidden_states), dim=-1)
            output = output * coef[..., 0:1] + mlp_out * coef[..., 1:]
        return output, l_aux, exp_counts


def split_params_into_different_moe_groups(model):
    dense = {"params": [], "name": "dense"}
    expert = {"params": [], "name": "expert", "moe": True}
    for param in model.parameters():
        (expert if getattr(param, "allreduce", True) is False else dense)["params"].append(param)
    return [dense, expert]
