import math
import contextlib
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler


from torch.distributed.tensor import distribute_tensor, Shard, Replicate, DTensor
from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel
from torch.distributed.fsdp import fully_shard

def main(args):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).cuda()
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel()})
    if mesh.get_local_rank("dp") == 0:
        state = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in model.state_dict().items()}
        if mesh.get_local_rank("tp") == 0:
            torch.save(state, "model.pt")
    dist.barrier()
