"""A mixture-of-experts layer with all-to-all over a process group, and the gradient synchronisation that leaves experts out."""

from typing import Any, Tuple, Union, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module, ModuleList


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup, input: Tensor) -> Tensor:
        ctx.group = group
        input = input.contiguous()
        output = torch.empty_like(input)
        dist.all_to_all_single(output, input, group=group)
        return output

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> Tuple[None, Tensor]:
        return (None, _AllToAll.apply(ctx.group, *grad_output))


class Top2Gate(Module):
    def __init__(self, model_dim: int, num_experts: int) -> None:
        super().__init__()
        self.wg = Linear(model_dim, num_experts, bias=False)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        logits = self.wg(x)
        gates = F.softmax(logits, dim=1, dtype=torch.float)
        tokens, experts = gates.shape
        capacity = 2 * tokens // experts
        first = torch.argmax(gates, dim=1)
        mask1 = F.one_hot(first, num_classes=experts)
        second = torch.argmax(logits.masked_fill(mask1.bool(), float("-inf")), dim=1)
        mask2 = F.one_hot(second, num_classes=experts)
        locations1 = torch.cumsum(mask1, dim=0) - 1
        locations2 = torch.cumsum(mask2, dim=0) - 1 + torch.sum(mask1, dim=0, keepdim=True)
        l_aux = torch.mean(torch.mean(gates, dim=0) * torch.mean(mask1.float(), dim=0)) * experts * experts
        mask1 = mask1 * torch.lt(locations1, capacity)
        mask2 = mask2 * torch.lt(locations2, capacity)
        gates1 = (gates * mask1).sum(dim=1)
        gates2 = (gates * mask2).sum(dim=1)
        denominator = torch.clamp(gates1 + gates2, min=torch.finfo(gates.dtype).eps)
        combine = torch.zeros(tokens, experts, capacity, device=x.device)
        for gate, mask, locations in ((gates1, mask1, locations1), (gates2, mask2, locations2)):
            slots = F.one_hot((locations * mask).sum(dim=1), num_classes=capacity).float()
            weight = (gate / denominator).unsqueeze(-1) * mask.float()
            combine = combine + torch.einsum("se,sc->sec", weight, slots)
        return l_aux, combine, combine.bool()


class MOELayer(Module):
    def __init__(self, gate: Module, experts: Union[Module, ModuleList], group: Any = None) -> None:
        super().__init__()
        self.gate = gate
        self.experts = cast(ModuleList, experts) if isinstance(experts, ModuleList) else ModuleList([experts])
        self.group = group if group is not None else dist.group.WORLD
        for expert in self.experts:
            for p in expert.parameters():
                p.expert = True
        self.world_size = dist.get_world_size(self.group)
        self.num_local_experts = len(self.experts)

    def forward(self, *input: Tensor, **kwargs: Any) -> Tensor:
        assert len(input) == 1, "only single input Tensor supported"
        shape = input[0].shape
        d_model = shape[2]
        reshaped = input[0].reshape(-1, d_model)
        self.l_aux, combine_weights, dispatch_mask = self.gate(reshaped)
        dispatched = torch.einsum("sec,sm->ecm", dispatch_mask.float(), reshaped)
        dispatched = _AllToAll.apply(self.group, dispatched)
        dispatched = dispatched.reshape(self.world_size, self.num_local_experts, -1, d_model)
        chunks = dispatched.chunk(self.num_local_experts, dim=1)
        expert_output = torch.cat([expert(chunk) for chunk, expert in zip(chunks, self.experts)], dim=1)
        expert_output = _AllToAll.apply(self.group, expert_output)
        expert_output = expert_output.reshape(self.world_size * self.num_local_experts, -1, d_model)
        return torch.einsum("sec,ecm->sm", combine_weights, expert_output).reshape(shape)


def sync_gradients(model: Module, group: Any = None) -> None:
    size = dist.get_world_size(group)
    for p in model.parameters():
        if p.grad is None:
            continue
        if getattr(p, "expert", False):
            # Every rank has other experts: the all-to-all has brought the gradients of all tokens here.
            p.grad.div_(size)
        else:
            dist.all_reduce(p.grad, group=group)
            p.grad.div_(size)
