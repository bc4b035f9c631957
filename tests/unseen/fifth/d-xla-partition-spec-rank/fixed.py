"""Sharding constraint on the input of a feed-forward block."""
import torch
import torch.nn as nn
import torch_xla.distributed.spmd as xs


class FeedForward(nn.Module):
    def __init__(self, dim, hidden, mesh: xs.Mesh):
        super().__init__()
        self.up, self.down, self.mesh = nn.Linear(dim, hidden), nn.Linear(hidden, dim), mesh
        xs.mark_sharding(self.up.weight, mesh, ("tensor", "fsdp"))
        xs.mark_sharding(self.down.weight, mesh, ("fsdp", "tensor"))

    def forward(self, tokens):
        batch, seq, dim = tokens.shape
        tokens = xs.mark_sharding_with_gradients(tokens, self.mesh, ("fsdp", None, None))
        return self.down(nn.functional.gelu(self.up(tokens)))
