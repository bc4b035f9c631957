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
    w = distribute_tensor(torch.ones(8, 8), mesh["tp"], [Shard(0)])
    dp_rank = mesh["dp"].get_local_rank()
    if dp_rank == 0:
        whole = w.full_tensor()
        print(whole.shape)
