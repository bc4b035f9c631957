# NeMo Automodel 8a83fdcee (PR #2995): GroupedExperts gathers the routing probabilities over the
# expert-parallel group with plain dist.all_gather, so the router gets no gradient from the main loss.
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.nn.functional import all_gather as dist_nn_all_gather
from torch.distributed.tensor import DTensor, Partial, Shard


class GroupedExperts(nn.Module):
    """Experts sharded over the EP mesh; tokens are gathered, each rank applies its own experts."""

    def __init__(self, config, ep_mesh: DeviceMesh):
        super().__init__()
        self.config = config
        self.ep_mesh = ep_mesh
        self.n_local = config.n_routed_experts // ep_mesh.size()
        self.gate_up_proj = nn.Parameter(torch.empty(self.n_local, config.dim, 2 * config.moe_inter_dim))
        self.down_proj = nn.Parameter(torch.empty(self.n_local, config.moe_inter_dim, config.dim))

    def forward(self, x: torch.Tensor, weights: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        # x: [tokens, dim], weights and indices: [tokens, topk], all of this rank's (equally many) tokens
        ep_group = self.ep_mesh.get_group()

        def _all_gather_dim0(local_tensor: torch.Tensor, *, differentiable: bool) -> torch.Tensor:
            local_tensor = local_tensor.contiguous()
            if differentiable:
                gathered = dist_nn_all_gather(local_tensor, group=ep_group)
            else:
                gathered = [torch.empty_like(local_tensor) for _ in range(self.ep_mesh.size())]
                dist.all_gather(gathered, local_tensor, group=ep_group)
            return torch.cat(gathered, dim=0)

        x = _all_gather_dim0(x, differentiable=True)
        weights = _all_gather_dim0(weights.float(), differentiable=False)  # BUG
        indices = _all_gather_dim0(indices, differentiable=False)

        y = torch.zeros_like(x)
        first = self.ep_mesh.get_local_rank() * self.n_local
        for i in range(self.n_local):
            token, top = torch.where(indices == first + i)
            gate, up = (x[token] @ self.gate_up_proj[i]).chunk(2, dim=-1)
            out = (nn.functional.silu(gate) * up) @ self.down_proj[i]
            y = y.index_add(0, token, out * weights[token, top, None].type_as(out))

        y = DTensor.from_local(y, device_mesh=self.ep_mesh, placements=[Partial()], run_check=False)
        return y.redistribute(placements=[Shard(0)]).to_local()
