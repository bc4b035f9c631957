"""ZeRO stage 1 with dense and expert parameter groups."""
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class DeepSpeedZeroOptimizer:
    def __init__(self, param_groups, dp_process_group, expert_dp_process_group, make_optimizer):
        self.param_groups = param_groups
        self.dp_process_group = dp_process_group
        self.real_dp_process_group = [
            expert_dp_process_group[g["name"]] if g.get("moe", False) else dp_process_group
            for g in param_groups
        ]
        self.flat, self.partition = [], []
        for i, g in enumerate(param_groups):
            flat = _flatten_dense_tensors([p.data for p in g["params"]])  # padded by the caller
            group = self.real_dp_process_group[i]
            part = flat.chunk(dist.get_world_size(group))[dist.get_rank(group)].clone()
            self.flat.append(flat)
            self.partition.append(part)
        self.optimizer = make_optimizer(self.partition)
        self.dp_size = dist.get_world_size(dp_process_group)

    def step(self):
        for i, g in enumerate(self.param_groups):
            grad = _flatten_dense_tensors([p.grad for p in g["params"]]).div_(self.dp_size)
            self.partition[i].grad = torch.empty_like(self.partition[i])
            dist.reduce_scatter_tensor(
                self.partition[i].grad, grad, group=self.real_dp_process_group[i]
            )
        self.optimizer.step()
        for i, g in enumerate(self.param_groups):
            dist.all_gather_into_tensor(
                self.flat[i],
                self.partition[i],
                group=self.real_dp_process_group[i],
            )
            for p, new in zip(g["params"], _unflatten_dense_tensors(self.flat[i], g["params"])):
                p.data.copy_(new)
