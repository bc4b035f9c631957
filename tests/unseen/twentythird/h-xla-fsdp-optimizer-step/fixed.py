"""Train with the XLA fully sharded wrapper."""
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP


def train(build_model, loader, loss_fn, epochs, lr):
    device = xm.xla_device()
    model = FSDP(build_model().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    loader = pl.MpDeviceLoader(loader, device)
    for _ in range(epochs):
        for data, target in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(data), target)
            loss.backward()
            model.clip_grad_norm_(1.0)
            optimizer.step()
    return model
