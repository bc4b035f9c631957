"""Sharded input pipeline of an image classifier under SPMD."""
import numpy as np
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch.utils.data import DataLoader


def build_train_loader(dataset, batch_size):
    xr.use_spmd()
    num_devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(num_devices), (num_devices, 1), ("fsdp", "tensor"))
    # a batch is {"pixel_values": [b, c, h, w], "labels": [b]}
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    return pl.MpDeviceLoader(
        loader,
        xm.xla_device(),
        input_sharding={
            "pixel_values": xs.ShardingSpec(mesh, ("fsdp", None, None, None)),
            "labels": xs.ShardingSpec(mesh, ("fsdp", None)),  # BUG: two entries for one dim
        },
    )
