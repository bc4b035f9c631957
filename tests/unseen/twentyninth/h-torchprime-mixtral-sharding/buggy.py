"""Dropping mixture of experts for PyTorch/XLA SPMD; mesh axes: data, fsdp, expert."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.distributed.spmd as xs
from torch_xla.distributed.spmd.xla_sharding import MarkShardingFunction


class MixtralExperts(nn.Module):
    def __init__(self, num_experts, hidden, inter):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, hidden, inter))
        self.w2 = nn.Parameter(torch.empty(num_experts, inter, hidden))
        self.w3 = nn.Parameter(torch.empty(num_experts, hidden, inter))

    def shard_parameters(self, mesh):
        for w in (self.w1, self.w2, self.w3):
            xs.mark_sharding(w, mesh, ("expert", "fsdp", None))

    def forward(self, hidden_states, dispatch_mask, combine_mask):
        # hidden_states: [batch, seq, hidden]; masks: [batch, seq, expert, capacity]
        mesh = xs.get_global_mesh()
        assert mesh is not None
        spec = ("expert", ("data", "fsdp"), None, None)

        x = torch.einsum("bsm,bsec->ebcm", hidden_states, dispatch_mask)
        x = MarkShardingFunction.apply(x, mesh, spec)

        layer_w1 = torch.einsum("ebcm,emh->ebch", x, self.w1)
        MarkShardingFunction.apply(layer_w1, mesh, spec)  # BUG
        layer_w3 = torch.einsum("ebcm,emh->ebch", x, self.w3)
        layer_w3 = MarkShardingFunction.apply(layer_w3, mesh, spec)

        intermediate = torch.einsum("ebch,ehm->ebcm", F.silu(layer_w1) * layer_w3, self.w2)
        intermediate = MarkShardingFunction.apply(intermediate, mesh, spec)
        out = torch.einsum("ebcm,bsec->bsm", intermediate, combine_mask)
        return MarkShardingFunction.apply(out, mesh, (("data", "fsdp"), None, None))
