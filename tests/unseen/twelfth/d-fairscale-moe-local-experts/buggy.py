"""GShard style mixture of experts layer; every rank owns several experts."""
import torch
import torch.distributed as dist
from torch.nn import Module, ModuleList


# Based on https://github.com/pytorch/pytorch/pull/40762
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


class MOELayer(Module):
    def __init__(self, gate: Module, experts: ModuleList, group=None) -> None:
        super().__init__()
        self.gate = gate  # num_experts = world_size * len(experts), numbered rank by rank
        self.experts = experts
        self.group = group if group is not None else dist.group.WORLD
        for p in experts.parameters():
            p.expert = True

    def all_to_all_dispatch(self, dispatch_mask, input):
        dispatched_input = torch.einsum("sec,sm->ecm", dispatch_mask.float(), input)
        return _AllToAll.apply(self.group, dispatched_input)

    def all_to_all_combine(self, combine_weights, input):
        expert_output = _AllToAll.apply(self.group, input)
        return torch.einsum("sec,ecm->sm", combine_weights, expert_output)

    def forward(self, input):
        shape = input.shape
        # Reshape into S tokens by dropping sequence dimension.
        reshaped_input = input.reshape(-1, shape[2])
        self.l_aux, combine_weights, dispatching_mask = self.gate(reshaped_input)
        dispatched_input = self.all_to_all_dispatch(dispatching_mask, reshaped_input)
        chunks = dispatched_input.chunk(len(self.experts), dim=0)  # BUG: after the all-to-all dim 0 is ordered by source rank first, then by local expert
        expert_outputs = []
        for chunk, expert in zip(chunks, self.experts):
            expert_outputs += [expert(chunk)]
        expert_output = torch.cat(expert_outputs, dim=0)
        combined_output = self.all_to_all_combine(combine_weights, expert_output)
        return combined_output.reshape(shape)
