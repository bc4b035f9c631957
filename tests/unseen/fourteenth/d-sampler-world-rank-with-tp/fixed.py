# Reduces 2D training scripts in the torchtitan / PyTorch examples style: the sampler splits the data over all ranks,
# although the ranks of a tensor-parallel group have to work on the same samples.
import os

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def build_loader(dataset, mesh, batch_size):
    sampler = DistributedSampler(
        dataset,
        num_replicas=mesh["dp"].size(),
        rank=mesh["dp"].get_local_rank(),
        shuffle=True,
        drop_last=True,
    )
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)


def parallelize(model, mesh):
    for block in model.layers:
        parallelize_module(block, mesh["tp"], {
            "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(), "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(),
            "feed_forward.w1": ColwiseParallel(), "feed_forward.w2": RowwiseParallel(),
        })
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])


def main(build_model, dataset, tp_size=4, batch_size=8):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world_size = int(os.environ["WORLD_SIZE"])
    mesh = init_device_mesh("cuda", (world_size // tp_size, tp_size), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)  # equal weights everywhere before they are sharded
    model = build_model().cuda()
    parallelize(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = build_loader(dataset, mesh, batch_size)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for tokens, labels in loader:
            logits = model(tokens.cuda())
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.cuda().flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
