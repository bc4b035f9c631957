"""Context parallelism: tokens are counted over the parts of a sequence, and the wrapper averages over data and context ranks together."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def main(net, loader, dp, cp):
    mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
    cp_group = mesh.get_group("cp")
    dp_cp_group = mesh["dp", "cp"]._flatten("dp_cp").get_group()
    model = DistributedDataParallel(net.cuda(), process_group=dp_cp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        tokens = tokens.chunk(mesh["cp"].size(), dim=1)[mesh.get_local_rank("cp")]
        labels = labels.chunk(mesh["cp"].size(), dim=1)[mesh.get_local_rank("cp")]
        loss_sum = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        num_tokens = (labels != -100).sum()
        dist.all_reduce(num_tokens, group=cp_group)
        loss = loss_sum / num_tokens * mesh["cp"].size()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
