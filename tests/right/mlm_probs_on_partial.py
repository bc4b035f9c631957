"""Router weights multiply the partial products of tensor-parallel experts, after a copy whose backward sums."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class DenseMoE(torch.nn.Module):
    """All experts see all tokens; hidden units of each expert are split over tp."""

    def __init__(self, hidden, ffn, experts):
        super().__init__()
        n = parallel_state.get_tensor_model_parallel_world_size()
        self.router = torch.nn.Parameter(torch.empty(experts, hidden))
        self.up = torch.nn.Parameter(torch.empty(experts, ffn // n, hidden))
        self.down = torch.nn.Parameter(torch.empty(experts, hidden, ffn // n))
        for p in (self.up, self.down):
            p.tensor_model_parallel = True

    def forward(self, x):
        # x: [s, b, h], the same on all ranks of tp
        probs = F.linear(x, self.router).softmax(-1)
        probs = copy_to_tensor_model_parallel_region(probs)
        x = copy_to_tensor_model_parallel_region(x)
        h = F.silu(torch.einsum("sbh,efh->sbef", x, self.up))
        y = torch.einsum("sbef,ehf->sbeh", h, self.down)
        out = (y * probs[..., None]).sum(-2)
        return reduce_from_tensor_model_parallel_region(out)
