"""Full recompute with distributed saved activations on an explicit TP group."""
# Source: NVIDIA/Megatron-LM issue 7452 finding 4 and pull request 7403 (thread; code from memory)
import torch
import torch.distributed as dist
from megatron.core import parallel_state


def split_into_equal_chunks(tensor, group):
    """This rank's 1-D part of a tensor that all ranks of the group hold."""
    return tensor.flatten().chunk(dist.get_world_size(group))[dist.get_rank(group)].clone()


def gather_equal_chunks(chunk, group):
    out = chunk.new_empty(dist.get_world_size(group) * chunk.numel())
    dist.all_gather_into_tensor(out, chunk, group=group)
    return out


class CheckpointFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run_function, group, hidden_states, *args):
        ctx.run_function, ctx.group, ctx.shape = run_function, group, hidden_states.shape
        with torch.no_grad():
            outputs = run_function(hidden_states, *args)
        ctx.save_for_backward(split_into_equal_chunks(hidden_states, group), *args)
        return outputs

    @staticmethod
    def backward(ctx, grad_output):
        chunk, *args = ctx.saved_tensors
        hidden_states = gather_equal_chunks(chunk, ctx.group).view(ctx.shape)
        hidden_states = hidden_states.detach().requires_grad_()
        with torch.enable_grad():
            outputs = ctx.run_function(hidden_states, *args)
        torch.autograd.backward(outputs, grad_output)
        return None, None, hidden_states.grad, *[None for _ in args]


def checkpoint(function, hidden_states, *args, group=None):
    group = group if group is not None else parallel_state.get_tensor_model_parallel_group()
    return CheckpointFunction.apply(function, group, hidden_states, *args)


class MultiTokenPredictionLayer(torch.nn.Module):
    """Lives on pg_collection.tp, which can differ from the default tensor-parallel group."""

    def __init__(self, config, eh_proj, transformer_layer, pg_collection):
        super().__init__()
        self.config, self.tp_group = config, pg_collection.tp
        self.enorm = torch.nn.RMSNorm(config.hidden_size)
        self.eh_proj, self.transformer_layer = eh_proj, transformer_layer

    def _proj_and_transformer_layer(self, hidden_states, decoder_input):
        hidden_states = torch.cat([self.enorm(decoder_input), hidden_states], dim=-1)
        hidden_states = self.eh_proj(hidden_states, tp_group=self.tp_group)
        return self.transformer_layer(hidden_states, tp_group=self.tp_group)

    def forward(self, hidden_states, decoder_input):
        # hidden_states, decoder_input: [s, b, h], the same on all ranks of self.tp_group
        if self.config.recompute_granularity == "full" and self.training:
            return checkpoint(self._proj_and_transformer_layer, hidden_states, decoder_input.detach())  # BUG
        return self._proj_and_transformer_layer(hidden_states, decoder_input.detach())
