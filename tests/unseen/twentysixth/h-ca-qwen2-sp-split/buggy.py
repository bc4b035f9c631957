# ColossalAI 1c961b20f (#5903)
"""Qwen2 forward with Megatron-style sequence parallelism (split_gather)."""
import torch
from colossalai.shardformer.layer._operation import (
    gather_forward_split_backward,
    split_forward_gather_backward,
)


def get_qwen2_model_forward(sp_mode, sp_group):
    def forward(self, input_ids, attention_mask, inputs_embeds=None, hidden_states=None, stage_manager=None):
        # pipeline stages after the first receive hidden_states, full sequence
        if stage_manager is None or stage_manager.is_first_stage():
            if inputs_embeds is None:
                inputs_embeds = self.embed_tokens(input_ids)
            hidden_states = inputs_embeds
        position_ids = torch.arange(hidden_states.shape[1], device=hidden_states.device).unsqueeze(0)

        if sp_mode == "split_gather":
            inputs_embeds = split_forward_gather_backward(inputs_embeds, 1, sp_group)  # BUG: the layers read hidden_states

        # each layer gathers the sequence before its column-parallel projections and
        # reduce-scatters after the row-parallel ones
        for decoder_layer in self.layers:
            hidden_states = decoder_layer(hidden_states, attention_mask, position_ids)

        if sp_mode == "split_gather":
            hidden_states = gather_forward_split_backward(hidden_states, 1, sp_group)
        if stage_manager is None or stage_manager.is_last_stage():
            hidden_states = self.norm(hidden_states)
        return hidden_states

    return forward
