"""Reduce dense and expert gradients on two views of the same ranks."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


class ParallelDims:
    def __init__(self, world, tp, ep, etp):
        self.tp, self.ep, self.etp = tp, ep, etp
        self.dense = init_device_mesh("cuda", (world // tp, tp), mesh_dim_names=("dp", "tp"))
        self.moe = init_device_mesh(
            "cuda", (world // (ep * etp), ep, etp), mesh_dim_names=("edp", "ep", "etp")
        )


class Experts(torch.nn.Module):
    def __init__(self, num_experts, dim, ffn, dims: ParallelDims):
        super().__init__()
        local, width = num_experts // dims.ep, ffn // dims.etp
        self.w_in = torch.nn.Parameter(torch.empty(local, dim, width))
        self.w_out = torch.nn.Parameter(torch.empty(local, width, dim))


def gradient_group(name, dims: ParallelDims):
    # tokens enter the MoE layer as sequence shards of the tp ranks
    # (norm and router gradients are already summed over tp by their own hooks)
    own_layout = dims.ep > 1 or dims.etp != dims.tp
    if ".experts." in name and own_layout:
        return dims.moe["edp"].get_group()
    return dims.dense["dp"].get_group()


def reduce_gradients(model, dims: ParallelDims):
    dp = dims.dense["dp"].size()
    for name, p in model.named_parameters():
        p.grad.div_(dp)
        dist.all_reduce(p.grad, group=gradient_group(name, dims))
