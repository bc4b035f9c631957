"""Diffusion transformer on Megatron-Core: the decoder runs sequence parallel, embedding and head are replicated."""
import torch
from megatron.core.models.common.vision_module.vision_module import VisionModule
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.transformer_block import TransformerBlock


class WanModel(VisionModule):
    def __init__(self, config, layer_spec, patch_dim, out_dim):
        super().__init__(config=config)
        self.patch_embedding = torch.nn.Linear(patch_dim, config.hidden_size)
        self.decoder = TransformerBlock(config=config, spec=layer_spec, pre_process=True, post_process=True)
        self.head = torch.nn.Linear(config.hidden_size, out_dim)

    def forward(self, patches, rotary_pos_emb):
        # patches: [s, b, patch_dim], the same on every tensor-parallel rank
        x = self.patch_embedding(patches)
        if self.config.sequence_parallel:
            x = scatter_to_sequence_parallel_region(x)

        x = self.decoder(hidden_states=x, attention_mask=None, rotary_pos_emb=rotary_pos_emb)

        if self.config.sequence_parallel:
            x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
        return self.head(x)


def flow_matching_loss(model, patches, rotary_pos_emb, target, weight):
    pred = model(patches, rotary_pos_emb)
    return (weight * (pred.float() - target.float()) ** 2).mean()
