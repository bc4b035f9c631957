"""The only group is that of all ranks."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main(model, batch):
    dist.init_process_group("nccl")
    cp_rank = dist.get_rank()
    cp_mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("cp",))
    cp_size = cp_mesh.size()
    tokens = batch.chunk(cp_size, dim=1)[cp_rank]
    positions = torch.arange(cp_rank * tokens.size(1), (cp_rank + 1) * tokens.size(1), device="cuda")
    return model(tokens, positions)
