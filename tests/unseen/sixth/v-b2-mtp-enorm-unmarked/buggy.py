"""Multi-token prediction layer under sequence parallelism."""
import torch
from megatron.core.transformer.module import MegatronModule


class MultiTokenPredictionLayer(MegatronModule):
    def __init__(self, config, eh_proj, transformer_layer):
        super().__init__(config=config)
        self.enorm = torch.nn.RMSNorm(config.hidden_size)  # BUG: unmarked
        self.hnorm = torch.nn.RMSNorm(config.hidden_size)
        setattr(self.hnorm.weight, "sequence_parallel", config.sequence_parallel)
        self.eh_proj, self.transformer_layer = eh_proj, transformer_layer

    def forward(self, decoder_input, hidden_states):
        # decoder_input, hidden_states: [s/tp, b, h] with sequence parallelism
        x = torch.cat((self.enorm(decoder_input), self.hnorm(hidden_states)), dim=-1)
        x, _ = self.eh_proj(x)
        return self.transformer_layer(x)
