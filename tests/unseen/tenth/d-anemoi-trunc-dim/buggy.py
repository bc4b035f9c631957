"""Truncation of grid-sharded fields.

ecmwf/anemoi-core 507b44143fc3, anemoi/models/models/encoder_processor_decoder.py
"""
import einops
import torch
from anemoi.models.distributed.graph import gather_channels, shard_channels
from anemoi.models.distributed.shapes import apply_shard_shapes, get_shard_shapes
from torch import nn


class AnemoiModelEncProcDec(nn.Module):
    def __init__(self, A_down, A_up):
        super().__init__()
        self.A_down, self.A_up = A_down, A_up

    def _truncate_fields(self, x, A):
        return torch.stack([torch.sparse.mm(A, x[i, ...]) for i in range(x.shape[0])])

    def _get_shard_shapes(self, x, dim=0, shard_shapes_dim=None, model_comm_group=None):
        if shard_shapes_dim is None:
            return get_shard_shapes(x, dim, model_comm_group)
        else:
            return apply_shard_shapes(x, dim, shard_shapes_dim)

    def _apply_truncation(self, x, grid_shard_shapes=None, model_comm_group=None):
        """x: (batch * ensemble, grid, vars); grid_shard_shapes: grid points of each rank."""
        if grid_shard_shapes is not None:
            shard_shapes = self._get_shard_shapes(x, 0, grid_shard_shapes, model_comm_group)  # BUG
            # grid-sharded input: reshard to channel-shards to apply truncation
            x = shard_channels(x, shard_shapes, model_comm_group)  # we get the full sequence here

        x = self._truncate_fields(x, self.A_down)  # to coarse resolution
        x = self._truncate_fields(x, self.A_up)  # back to high resolution

        if grid_shard_shapes is not None:
            # back to grid-sharding as before
            x = gather_channels(x, shard_shapes, model_comm_group)
        return x

    def _assemble_input(self, x, batch_size, grid_shard_shapes=None, model_comm_group=None):
        x_skip = x[:, -1, ...]
        x_skip = einops.rearrange(x_skip, "batch ensemble grid vars -> (batch ensemble) grid vars")
        x_skip = self._apply_truncation(x_skip, grid_shard_shapes, model_comm_group)
        return einops.rearrange(x_skip, "(batch ensemble) grid vars -> batch ensemble grid vars", batch=batch_size)
