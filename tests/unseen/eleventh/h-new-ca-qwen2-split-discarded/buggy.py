"""Qwen2 model forward with Ulysses-style sequence parallelism (sp_mode "all_to_all")."""
import torch
from colossalai.shardformer.layer._operation import (
    gather_forward_split_backward,
    split_forward_gather_backward,
)

# spmd: mesh dense = dp, sp


class Qwen2ModelForward(torch.nn.Module):
    def __init__(self, embed_tokens, layers, norm, sp_group, sp_size):
        super().__init__()
        self.embed_tokens, self.layers, self.norm = embed_tokens, torch.nn.ModuleList(layers), norm
        self.sp_group, self.sp_size = sp_group, sp_size

    # spmd: input_ids: {sp: R} -> {sp: I}
    def forward(self, input_ids, position_ids):
        inputs_embeds = self.embed_tokens(input_ids)  # [b, s, h], the same on all sp ranks
        hidden_states = inputs_embeds

        inputs_embeds = split_forward_gather_backward(inputs_embeds, 1, self.sp_group, 1 / self.sp_size)  # BUG: unused
        # spmd: hidden_states: {sp: S(1)}
        for decoder_layer in self.layers:
            # attention exchanges sequence shards for head shards and back
            hidden_states = decoder_layer(hidden_states, position_ids, self.sp_group)

        hidden_states = self.norm(hidden_states)
        return gather_forward_split_backward(hidden_states, 1, self.sp_group, grad_scale=self.sp_size)
