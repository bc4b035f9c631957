# Draft head (Medusa / MTP style) on top of a sequence-parallel Megatron decoder.
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.module import MegatronModule


class DraftMLP(MegatronModule):
    def __init__(self, config):
        super().__init__(config)
        tp = parallel_state.get_tensor_model_parallel_world_size()
        h, f = config.hidden_size, config.ffn_hidden_size // tp
        self.fc1 = torch.nn.Parameter(torch.empty(f, h, dtype=config.params_dtype))
        self.fc2 = torch.nn.Parameter(torch.empty(h, f, dtype=config.params_dtype))
        for w in (self.fc1, self.fc2):
            w.tensor_model_parallel = True
            config.init_method(w)

    def forward(self, hidden_states):
        # hidden_states: [s / tp, b, h]
        full = gather_from_sequence_parallel_region(hidden_states, tensor_parallel_output_grad=False)
        inter = F.silu(F.linear(full, self.fc1))  # BUG
        out = F.linear(inter, self.fc2)
        return hidden_states + reduce_scatter_to_sequence_parallel_region(out)
