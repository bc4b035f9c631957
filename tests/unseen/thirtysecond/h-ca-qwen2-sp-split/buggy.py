"""Qwen2 decoder forward with sequence parallelism.
hpcaitech/ColossalAI #5903, "[ShardFormer] fix qwen2 sp".
"""
import torch
from colossalai.shardformer.layer._operation import (
    gather_forward_split_backward,
    split_forward_gather_backward,
)


def get_qwen2_model_forward(sp_mode=None, sp_size=None, sp_group=None):
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, inputs_embeds=None):
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        seq_length = inputs_embeds.shape[1]
        if position_ids is None:
            position_ids = torch.arange(seq_length, device=inputs_embeds.device).unsqueeze(0)
        hidden_states = inputs_embeds

        if sp_mode in ["ring", "split_gather"]:
            inputs_embeds = split_forward_gather_backward(inputs_embeds, 1, sp_group)  # BUG
        elif sp_mode == "all_to_all":
            inputs_embeds = split_forward_gather_backward(inputs_embeds, 1, sp_group, 1 / sp_size)  # BUG

        for decoder_layer in self.layers:
            hidden_states = decoder_layer(
                hidden_states, attention_mask=attention_mask, position_ids=position_ids
            )[0]
        hidden_states = self.norm(hidden_states)

        if sp_mode in ["ring", "split_gather"]:
            hidden_states = gather_forward_split_backward(hidden_states, 1, sp_group)
        elif sp_mode == "all_to_all":
            hidden_states = gather_forward_split_backward(hidden_states, 1, sp_group, grad_scale=sp_size)
        return hidden_states

    return forward
