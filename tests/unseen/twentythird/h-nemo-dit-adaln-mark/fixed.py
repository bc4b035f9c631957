"""Diffusion transformer layer with adaptive layer norm under sequence parallelism."""
import torch
from torch import nn
from megatron.core.transformer.module import MegatronModule


class AdaLN(MegatronModule):
    def __init__(self, config, n_adaln_chunks=6):
        super().__init__(config=config)
        self.n_adaln_chunks = n_adaln_chunks
        self.ln = nn.LayerNorm(config.hidden_size, elementwise_affine=False)
        self.adaLN_modulation = nn.Sequential(
            nn.SiLU(),
            nn.Linear(config.hidden_size, n_adaln_chunks * config.hidden_size, bias=False),
        )
        setattr(self.adaLN_modulation[-1].weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, timestep_emb):
        return self.adaLN_modulation(timestep_emb).chunk(self.n_adaln_chunks, dim=-1)

    def modulated_layernorm(self, x, shift, scale):
        return self.ln(x) * (1 + scale) + shift


class DiTLayer(MegatronModule):
    def __init__(self, config, self_attention, mlp):
        super().__init__(config=config)
        self.adaLN, self.self_attention, self.mlp = AdaLN(config), self_attention, mlp

    def forward(self, x, timestep_emb):
        # x: [s/tp, b, h]; timestep_emb: [b, h], sinusoidal (not trained), same on all TP ranks
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.adaLN(timestep_emb)
        x = x + gate_a * self.self_attention(self.adaLN.modulated_layernorm(x, shift_a, scale_a))
        return x + gate_m * self.mlp(self.adaLN.modulated_layernorm(x, shift_m, scale_m))
