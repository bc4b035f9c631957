"""MoE block over a device mesh: gather tokens, run the local experts, reduce-scatter the outputs."""
import torch
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch import nn


class ParallelMoE(nn.Module):
    """With EP the experts are split over dp x tp; without it each rank holds a 1/tp slice of every expert's FFN."""

    def __init__(self, args, world_mesh):
        super().__init__()
        self.ep_enabled = args.ep_degree > 1
        self.token_mesh = world_mesh["dp_tp"] if self.ep_enabled else world_mesh["tp"]
        tp = world_mesh["tp"].size()
        if self.ep_enabled:
            n_local, ffn = args.num_experts // world_mesh["dp_tp"].size(), args.ffn_dim
            self.first = world_mesh["dp_tp"].get_local_rank() * n_local
        else:
            n_local, ffn = args.num_experts, args.ffn_dim // tp
            self.first = 0
        self.n_local = n_local
        self.w1 = nn.Parameter(torch.empty(n_local, args.dim, ffn))
        self.w2 = nn.Parameter(torch.empty(n_local, ffn, args.dim))

    def forward(self, x, scores):
        # x: [tokens / (dp * tp), dim], scores: [tokens / (dp * tp), num_experts] after top-k
        group = self.token_mesh.get_group()
        x = funcol.all_gather_tensor_autograd(x, 0, group)
        scores = funcol.all_gather_tensor_autograd(scores, 0, group)
        scores = scores[:, self.first : self.first + self.n_local]
        h = F.silu(torch.einsum("td,edf->etf", x, self.w1))
        y = torch.einsum("etf,efd,te->td", h, self.w2, scores)
        return funcol.reduce_scatter_tensor_autograd(y, "sum", 0, group)
