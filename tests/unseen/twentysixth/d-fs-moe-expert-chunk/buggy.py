# fairscale 317c0945 (#184)
"""GShard-style mixture of experts with several experts per rank."""
import torch
import torch.distributed as dist
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
    def backward(ctx, grad_output):
        return None, _AllToAll.apply(ctx.group, grad_output)


class MOELayer(nn.Module):
    def __init__(self, gate, experts: nn.ModuleList, group=None):
        super().__init__()
        self.gate, self.experts = gate, experts  # gate knows world_size * num_local_experts experts
        self.group = group if group is not None else dist.group.WORLD
        self.world_size = dist.get_world_size(self.group)
        self.num_local_experts = len(self.experts)

    def forward(self, input):
        d_model = input.shape[2]
        x = input.reshape(-1, d_model)
        self.l_aux, combine_weights, dispatch_mask = self.gate(x)
        dispatched = torch.einsum("sec,sm->ecm", dispatch_mask.to(x.dtype), x)
        dispatched = _AllToAll.apply(self.group, dispatched)
        chunks = dispatched.chunk(self.num_local_experts, dim=0)  # BUG: dim 0 is source rank major
        outputs = torch.cat([expert(c) for c, expert in zip(chunks, self.experts)], dim=0)
        outputs = _AllToAll.apply(self.group, outputs)
        return torch.einsum("sec,ecm->sm", combine_weights.to(x.dtype), outputs).reshape(input.shape)
