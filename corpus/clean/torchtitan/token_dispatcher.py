"""Expert parallelism: tokens are sorted by expert, exchanged, run through grouped experts and brought back."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd
from torch.distributed.tensor import DeviceMesh, DTensor, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden, num_experts):
        super().__init__()
        self.num_experts = num_experts
        self.w1 = nn.Parameter(torch.empty(num_experts, hidden, dim))
        self.w2 = nn.Parameter(torch.empty(num_experts, dim, hidden))
        self.w3 = nn.Parameter(torch.empty(num_experts, hidden, dim))

    def forward(self, x, tokens_per_expert):
        w1, w2, w3 = (w.to_local() if isinstance(w, DTensor) else w for w in (self.w1, self.w2, self.w3))
        outputs = []
        for i, part in enumerate(torch.split(x, tokens_per_expert.tolist(), dim=0)):
            hidden = F.silu(part @ w1[i].t()) * (part @ w3[i].t())
            outputs.append(hidden @ w2[i].t())
        return torch.cat(outputs, dim=0)


class ExpertParallel(ParallelStyle):
    def __init__(self):
        super().__init__()
        self.input_splits, self.output_splits, self.permutation = None, None, None

    def _partition(self, name, module, mesh):
        for param_name, param in module.named_parameters(recurse=False):
            module.register_parameter(param_name, nn.Parameter(distribute_tensor(param, mesh, [Shard(0)])))

    def _dispatch(self, module, inputs, mesh):
        routed, counts = inputs
        ep, local = mesh.size(), counts.numel() // mesh.size()
        with torch.no_grad():
            received = all_to_all_single(counts, None, None, group=mesh.get_group())
            self.input_splits = counts.view(ep, -1).sum(dim=1).tolist()
            self.output_splits = received.view(ep, -1).sum(dim=1).tolist()
        routed = all_to_all_single_autograd(routed, self.output_splits, self.input_splits, mesh.get_group())
        owner = torch.arange(local, device=counts.device).repeat(ep).repeat_interleave(received)
        self.permutation = torch.argsort(owner, stable=True)
        return routed[self.permutation], received.view(ep, local).sum(dim=0)

    def _combine(self, module, output, mesh):
        unsorted = torch.empty_like(output).index_copy(0, self.permutation, output)
        return all_to_all_single_autograd(unsorted, self.input_splits, self.output_splits, mesh.get_group())

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module, device_mesh, partition_fn=self._partition, input_fn=self._dispatch, output_fn=self._combine
        )


class MoE(nn.Module):
    def __init__(self, dim, hidden, num_experts, top_k, score_before_experts=False):
        super().__init__()
        self.top_k, self.num_experts = top_k, num_experts
        self.score_before_experts = score_before_experts
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = GroupedExperts(dim, hidden, num_experts)
        self.register_buffer("expert_bias", torch.zeros(num_experts), persistent=True)

    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        scores = torch.sigmoid(self.gate(x).float())
        _, selected = torch.topk(scores + self.expert_bias, k=self.top_k, dim=1)
        top_scores = scores.gather(dim=1, index=selected)
        counts = torch.bincount(selected.view(-1), minlength=self.num_experts)
        order = torch.argsort(selected.view(-1), stable=True)
        weights = top_scores.view(-1)[order].unsqueeze(-1)
        routed = x[order // self.top_k]
        if self.score_before_experts:
            routed = (routed.float() * weights).to(x.dtype)
        out = self.experts(routed, counts)
        if not self.score_before_experts:
            out = (out.float() * weights).to(x.dtype)
        result = torch.zeros_like(x)
        result = result.scatter_add(0, (order // self.top_k).unsqueeze(-1).expand(-1, shape[-1]), out)
        return result.view(shape)
