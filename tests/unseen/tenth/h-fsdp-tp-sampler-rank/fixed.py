"""FSDP + TP training loop on a 2D mesh (PyTorch examples)."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def build_loader(dataset, batch_size, device_mesh):
    sampler = DistributedSampler(
        dataset,
        num_replicas=device_mesh["dp"].size(),
        rank=device_mesh["dp"].get_local_rank(),
        shuffle=True,
    )
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)


def main(model, dataset, tp_size, batch_size, num_epochs):
    dist.init_process_group("nccl")
    dp_size = dist.get_world_size() // tp_size
    device_mesh = init_device_mesh("cuda", (dp_size, tp_size), mesh_dim_names=("dp", "tp"))
    for block in model.layers:
        plan = {"feed_forward.w1": ColwiseParallel(), "feed_forward.w2": RowwiseParallel()}
        parallelize_module(block, device_mesh["tp"], plan)
        fully_shard(block, mesh=device_mesh["dp"])
    fully_shard(model, mesh=device_mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = build_loader(dataset, batch_size, device_mesh)
    for epoch in range(num_epochs):
        loader.sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
