"""the base saves its own parameter, the subclass adds the other."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint


class Up(torch.nn.Module):
    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        return make_sharded_tensors_for_checkpoint({"up": self.up}, prefix, {"up": 0}, sharded_offsets)


class MLP(Up):
    def __init__(self, hidden, inner):
        super().__init__()
        per_rank = inner // parallel_state.get_tensor_model_parallel_world_size()
        self.up = torch.nn.Parameter(torch.empty(per_rank, hidden))
        self.down = torch.nn.Parameter(torch.empty(hidden, per_rank))
        set_tensor_model_parallel_attributes(tensor=self.up, is_parallel=True, dim=0, stride=1)
        set_tensor_model_parallel_attributes(tensor=self.down, is_parallel=True, dim=1, stride=1)

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        out = super().sharded_state_dict(prefix, sharded_offsets, metadata)
        out.update(make_sharded_tensors_for_checkpoint({"down": self.down}, prefix, {"down": 1}, sharded_offsets))
        return out
