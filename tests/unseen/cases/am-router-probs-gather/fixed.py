"""Grouped experts with the torch dispatcher: tokens and routing weights of all EP ranks."""
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_tensor_autograd, reduce_scatter_tensor_autograd


class GroupedExperts(torch.nn.Module):
    def __init__(self, gate_up, down, ep_group):
        super().__init__()
        self.gate_up, self.down = torch.nn.Parameter(gate_up), torch.nn.Parameter(down)
        self.ep_group = ep_group

    def forward(self, x, weights, indices):
        # x, weights, indices: this rank's tokens
        ep = dist.get_world_size(self.ep_group)
        x = all_gather_tensor_autograd(x, 0, self.ep_group)
        weights = all_gather_tensor_autograd(weights, 0, self.ep_group)
        all_indices = [torch.zeros_like(indices) for _ in range(ep)]
        dist.all_gather(all_indices, indices, group=self.ep_group)
        indices = torch.cat(all_indices, dim=0)
        y = torch.zeros_like(x)
        for i in range(self.gate_up.shape[0]):
            w = (weights * (indices == i)).sum(dim=-1, keepdim=True)
            y = y + w * (torch.relu(x @ self.gate_up[i]) @ self.down[i])
        return reduce_scatter_tensor_autograd(y, "sum", 0, self.ep_group)
