"""Gradient metrics with hybrid sharding."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


class Optimizer(torch.optim.AdamW):
    @torch.no_grad()
    def clip_grads_and_collect_metrics(self, process_group):
        per_param_min, per_param_max = [], []
        for group in self.param_groups:
            for p in group["params"]:
                per_param_min.append(p.grad.abs().min().unsqueeze(0))
                per_param_max.append(p.grad.abs().max().unsqueeze(0))
        all_mins, all_maxs = torch.cat(per_param_min), torch.cat(per_param_max)
        dist.reduce(all_mins, 0, op=dist.ReduceOp.MIN, group=process_group)  # BUG: rank 0 is in one group only
        dist.reduce(all_maxs, 0, op=dist.ReduceOp.MAX, group=process_group)
        return all_mins, all_maxs


def train_step(model, optim, loss, nodes, local_world):
    mesh = init_device_mesh("cuda", (nodes, local_world), mesh_dim_names=("replicate", "shard"))
    loss.backward()
    metrics = optim.clip_grads_and_collect_metrics(mesh.get_group("shard"))
    optim.step()
    return metrics
