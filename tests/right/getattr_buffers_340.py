"""the tables are found by name and added to the buffers."""
import torch.nn as nn
from torch.distributed.tensor.experimental import context_parallel


class Transformer(nn.Module):
    def __init__(self, layers, embed, table):
        super().__init__()
        self.layers, self.embed = layers, embed
        self.register_buffer("freqs_cis", table, persistent=False)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden, self.freqs_cis[: hidden.shape[1]])
        return hidden


def step(model, tokens, labels, mesh, loss_of):
    buffers, dims = [tokens, labels], [1, 1]
    for name, buffer in model.named_buffers():
        if name.endswith("freqs_cis"):
            buffers.append(buffer)
            dims.append(0)
    with context_parallel(mesh["cp"], buffers=buffers, buffer_seq_dims=dims):
        loss_of(model(tokens), labels).backward()
