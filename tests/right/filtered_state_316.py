"""two calls, each with a filtered state."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint


class MLP(torch.nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        per_rank = inner // parallel_state.get_tensor_model_parallel_world_size()
        self.up = torch.nn.Parameter(torch.empty(per_rank, hidden))
        self.down = torch.nn.Parameter(torch.empty(hidden, per_rank))
        set_tensor_model_parallel_attributes(tensor=self.up, is_parallel=True, dim=0, stride=1)
        set_tensor_model_parallel_attributes(tensor=self.down, is_parallel=True, dim=1, stride=1)

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        state = self.state_dict(prefix="", keep_vars=True)
        ups = {k: v for k, v in state.items() if k.startswith("up")}
        downs = {k: v for k, v in state.items() if not k.startswith("up")}
        out = make_sharded_tensors_for_checkpoint(ups, prefix, {"up": 0}, sharded_offsets)
        return {**out, **make_sharded_tensors_for_checkpoint(downs, prefix, {"down": 1}, sharded_offsets)}
