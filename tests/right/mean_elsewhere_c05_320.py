import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", torch.cuda.current_device())
world = dist.get_world_size()
mesh_2d = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))
dp_mesh, tp_mesh = mesh_2d["dp"], mesh_2d["tp"]

torch.manual_seed(5)
tokens = torch.randint(0, 1000, (4000, 16))
targets = torch.randint(0, 8, (4000,))
ds = TensorDataset(tokens, targets)

embed = nn.Embedding(1000, 64).to(device)
mlp = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to(device)
mlp = parallelize_module(mlp, tp_mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
opt_embed = torch.optim.Adam(embed.parameters(), lr=1e-3)
opt_mlp = torch.optim.Adam(mlp.parameters(), lr=1e-3)

sampler = DistributedSampler(ds, num_replicas=dp_mesh.size(), rank=dp_mesh.get_local_rank(), seed=5)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for ids, y in DataLoader(ds, batch_size=50, sampler=sampler):
        opt_embed.zero_grad()
        opt_mlp.zero_grad()
        logits = mlp(embed(ids.to(device)).mean(1))
        loss = nn.functional.cross_entropy(logits, y.to(device))
        loss.backward()
        # the embedding is a replica on both tp ranks; its gradient there is already equal
        grads = [p.grad for p in embed.parameters()] + [p.grad.to_local() for p in mlp.parameters()]
        for g in grads:
            dist.all_reduce(g, group=dp_mesh.get_group())
            g.mul_(2).div_(world)
        opt_embed.step()
        opt_mlp.step()
dist.destroy_process_group()
