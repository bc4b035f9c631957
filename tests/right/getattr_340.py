"""the table is taken by getattr."""
import torch.nn as nn
from torch.distributed.tensor.experimental import context_parallel


class Transformer(nn.Module):
    def __init__(self, layers, embed, table):
        super().__init__()
        self.layers = layers
        self.embed = embed
        self.register_buffer("freqs_cis", table, persistent=False)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden, self.freqs_cis[: hidden.shape[1]])
        return hidden


def step(model, tokens, labels, mesh, loss_of):
    table = getattr(model, "freqs_cis")
    with context_parallel(mesh["cp"], buffers=[tokens, labels, table], buffer_seq_dims=[1, 1, 0]):
        loss_of(model(tokens), labels).backward()
