"""Per-layer embeddings: token embedding plus a projection of the decoder input."""
import torch
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    VocabParallelEmbedding,
    scatter_to_sequence_parallel_region,
)

# spmd: mesh dense = dp, cp, tp


class PerLayerInputs(torch.nn.Module):
    def __init__(self, config, vocab, n_layers, ple_dim, init_method):
        super().__init__()
        assert config.sequence_parallel
        self.embedding = VocabParallelEmbedding(vocab, n_layers * ple_dim, config=config, init_method=init_method)
        self.model_proj = ColumnParallelLinear(
            config.hidden_size, n_layers * ple_dim, config=config, init_method=init_method,
            bias=False, gather_output=True,
        )  # sequence parallel: gathers its input along dim 0
        self.scale = config.hidden_size ** -0.5

    # spmd: input_ids: {tp: R}, decoder_input: {tp: S(0)} -> {tp: S(1)}
    def forward(self, input_ids, decoder_input):
        # input_ids: [b, s]; decoder_input: [s/tp, b, h]; returns [b, s/tp, n*d]
        tok = self.embedding(input_ids)
        tok = scatter_to_sequence_parallel_region(tok.transpose(0, 1)).transpose(0, 1)
        proj, _ = self.model_proj(decoder_input)
        proj = scatter_to_sequence_parallel_region(proj).transpose(0, 1)
        return tok + proj * self.scale
