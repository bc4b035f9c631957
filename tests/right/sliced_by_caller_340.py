"""the caller gives the model the table of its part."""
import torch.nn as nn
from torch.distributed.tensor.experimental import context_parallel


class Transformer(nn.Module):
    def __init__(self, layers, embed, table):
        super().__init__()
        self.layers = layers
        self.embed = embed
        self.register_buffer("freqs_cis", table, persistent=False)

    def forward(self, tokens, freqs_cis=None):
        hidden = self.embed(tokens)
        freqs = self.freqs_cis[: hidden.shape[1]] if freqs_cis is None else freqs_cis
        for layer in self.layers:
            hidden = layer(hidden, freqs)
        return hidden


def step(model, tokens, labels, mesh, loss_of):
    table = model.freqs_cis[: tokens.shape[1]].clone()
    with context_parallel(mesh["cp"], buffers=[tokens, labels, table], buffer_seq_dims=[1, 1, 0]):
        loss_of(model(tokens, table), labels).backward()
