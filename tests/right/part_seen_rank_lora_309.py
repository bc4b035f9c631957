import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes


class LoraColumn(torch.nn.Module):
    """The budget of ranks of all adapters is shared out: fewer with more ranks, but each adapter is whole on all of them."""

    def __init__(self, input_size, output_size, budget):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        r = budget // tp
        self.a = torch.nn.Parameter(torch.empty(r, input_size))
        self.a.sequence_parallel = True
        self.b = torch.nn.Parameter(torch.zeros(output_size // tp, r))
        set_tensor_model_parallel_attributes(tensor=self.b, is_parallel=True, dim=0, stride=1)
