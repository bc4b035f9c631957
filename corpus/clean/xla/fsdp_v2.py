"""A decoder that is wrapped over the axis of its parameters; the input is sharded over the batch by the loader's spec."""

import numpy as np
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import torch_xla.distributed.spmd as xs
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel as FSDPv2


class Decoder(nn.Module):
    def __init__(self, vocab=1024, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def shard_output(output, mesh):
    xs.mark_sharding(output, mesh, ("fsdp", None, None))


def main(batch=16, length=128):
    xr.use_spmd()
    num_devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.array(range(num_devices)), (num_devices, 1), axis_names=("fsdp", "model"))
    xs.set_global_mesh(mesh)
    device = xm.xla_device()
    model = FSDPv2(Decoder().to(device), mesh=mesh, shard_output=shard_output)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        tokens = torch.randint(0, 1024, (batch, length)).to(device)
        xs.mark_sharding(tokens, xs.get_global_mesh(), ("fsdp", None))
        loss = model(tokens).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        xm.mark_step()


if __name__ == "__main__":
    main()
