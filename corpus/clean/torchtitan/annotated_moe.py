"""Expert parallelism with spmd_types: sequence shards as tokens, exchange on ep, experts replicated over nothing else."""

import spmd_types as spmd
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("edp", "ep"))
edp, ep = mesh.get_group("edp"), mesh.get_group("ep")


@spmd.local_map(out_types={"edp": spmd.V, "ep": spmd.V})
def grouped_mlp(x, w1, w2, counts):
    outputs = []
    for i, part in enumerate(torch.split(x, counts, dim=0)):
        outputs.append(F.silu(part @ w1[i]) @ w2[i])
    return torch.cat(outputs, dim=0)


class Router(nn.Module):
    def __init__(self, dim, num_experts, top_k):
        super().__init__()
        self.top_k = top_k
        # Every rank routes its own tokens: the gradient of the gate is partial on both axes and summed by fully_shard.
        self.gate = nn.Parameter(torch.empty(num_experts, dim))
        spmd.assert_type(self.gate, {edp: spmd.R, ep: spmd.R})
        self.register_buffer("bias", torch.zeros(num_experts))

    def forward(self, x):
        scores = torch.sigmoid(F.linear(x, self.gate).float())
        chosen = torch.topk(scores + self.bias, self.top_k, dim=-1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        counts = torch.bincount(chosen.flatten(), minlength=self.bias.numel())
        return weights, chosen, counts


class MoE(nn.Module):
    def __init__(self, dim, inner, num_experts, top_k):
        super().__init__()
        self.top_k, self.num_experts = top_k, num_experts
        local = num_experts // ep.size()
        self.router = Router(dim, num_experts, top_k)
        self.w1 = nn.Parameter(torch.empty(local, dim, inner))
        self.w2 = nn.Parameter(torch.empty(local, inner, dim))
        for weight in (self.w1, self.w2):
            spmd.assert_type(weight, {edp: spmd.R, ep: spmd.S(0)})

    def forward(self, x):
        spmd.assert_type(x, {edp: spmd.V, ep: spmd.V})
        tokens, dim = x.shape
        weights, chosen, counts = self.router(x)
        received = spmd.all_to_all(counts.view(ep.size(), -1), ep, src=spmd.V, dst=spmd.V)
        in_splits = counts.view(ep.size(), -1).sum(dim=1).tolist()
        out_splits = received.sum(dim=1).tolist()

        order = torch.argsort(chosen.flatten(), stable=True)
        routed = x[order // self.top_k]
        routed = spmd.all_to_all(routed, ep, src=spmd.V, dst=spmd.V, output_split_sizes=out_splits, input_split_sizes=in_splits)
        owner = torch.arange(received.shape[1], device=x.device).repeat(ep.size()).repeat_interleave(received.flatten())
        by_expert = torch.argsort(owner, stable=True)
        out = grouped_mlp(routed[by_expert], self.w1, self.w2, received.sum(dim=0).tolist())
        out = torch.zeros_like(out).index_copy(0, by_expert, out)
        out = spmd.all_to_all(out, ep, src=spmd.V, dst=spmd.V, output_split_sizes=in_splits, input_split_sizes=out_splits)

        out = out * weights.flatten()[order].unsqueeze(-1)
        combined = torch.zeros_like(x).index_add(0, order // self.top_k, out)
        return combined.view(tokens, dim)

    @torch.no_grad()
    def update_bias(self, counts, rate=1e-3):
        counts = spmd.all_reduce(counts.float(), ep, src=spmd.P, dst=spmd.R)
        counts = spmd.all_reduce(counts, edp, src=spmd.P, dst=spmd.R)
        delta = rate * torch.sign(counts.mean() - counts)
        self.router.bias.add_(delta - delta.mean())
