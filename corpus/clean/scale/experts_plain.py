"""Expert parallelism: the gradients of experts are summed over the ranks that hold the same ones, and divided like all others."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh


def reduce_gradients(model, dp_group, edp_group):
    dp_size = dist.get_world_size(dp_group)
    for name, param in model.named_parameters():
        if param.grad is None:
            continue
        group = edp_group if "experts" in name else dp_group
        dist.all_reduce(param.grad, group=group)
        param.grad.div_(dp_size)


def main(model, loader, edp, ep):
    mesh = init_device_mesh("cuda", (edp, ep), mesh_dim_names=("edp", "ep"))
    dp_group = mesh["edp", "ep"]._flatten("dp").get_group()
    edp_group = mesh["edp"].get_group()
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).backward()
        reduce_gradients(model, dp_group, edp_group)
        optimizer.step()
        optimizer.zero_grad()
