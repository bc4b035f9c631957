# LLM fine-tuning under XLA SPMD on a multi-host TPU slice.
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler

xr.use_spmd()


def make_mesh():
    n = xr.global_runtime_device_count()
    return xs.Mesh(np.arange(n), (n, 1), ("fsdp", "tensor"))


def make_loader(dataset, mesh, per_host_batch, collate_fn):
    # every host reads its own part of the data set
    sampler = DistributedSampler(dataset, num_replicas=xr.process_count(), rank=xr.process_index(), shuffle=True)
    loader = DataLoader(dataset, batch_size=per_host_batch, sampler=sampler, collate_fn=collate_fn, drop_last=True)
    spec = xs.ShardingSpec(mesh, ("fsdp", None), minibatch=True)
    return pl.MpDeviceLoader(loader, torch_xla.device(), input_sharding=spec)


def shard_model(model, mesh):
    for name, param in model.named_parameters():
        if param.dim() == 2 and param.shape[0] % mesh.shape()["fsdp"] == 0:
            xs.mark_sharding(param, mesh, ("fsdp", None))
    return model


def train(model, dataset, collate_fn, args):
    mesh = make_mesh()
    model = shard_model(model.to(torch_xla.device()), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for batch in make_loader(dataset, mesh, args.per_host_batch, collate_fn):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        xm.mark_step()
