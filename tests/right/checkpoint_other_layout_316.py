"""a GLU weight is split on dim 0 in two halves: each half is a sharded tensor of dim 0, by a factory; the bias is whole."""
import torch
import torch.nn as nn
from megatron.core import parallel_state
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint


class GLU(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        per_rank = inner // parallel_state.get_tensor_model_parallel_world_size()
        self.up = nn.Parameter(torch.empty(2 * per_rank, hidden))
        self.down = nn.Parameter(torch.empty(hidden, per_rank))
        set_tensor_model_parallel_attributes(tensor=self.up, is_parallel=True, dim=0, stride=2)
        set_tensor_model_parallel_attributes(tensor=self.down, is_parallel=True, dim=1, stride=1)

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        rank = parallel_state.get_tensor_model_parallel_rank()
        size = parallel_state.get_tensor_model_parallel_world_size()
        out = make_sharded_tensors_for_checkpoint({"down": self.down}, prefix, {"down": 1}, sharded_offsets)
        for name, half in zip(("gate", "value"), self.up.chunk(2)):
            key = f"{prefix}up.{name}"
            out[key] = ShardedTensor.from_rank_offsets(key, half, *sharded_offsets, (len(sharded_offsets), rank, size))
        return out
