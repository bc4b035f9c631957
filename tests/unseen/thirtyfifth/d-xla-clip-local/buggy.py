"""Training loop of one TPU core."""
# thread: pytorch/xla#1708
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train_loop(model, loader, optimizer, flags):
    device = xm.xla_device()
    model = model.to(device)
    xm.broadcast_master_param(model)
    model.train()
    for data, target in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), flags.clip_norm)  # BUG: gradients are still this core's own
        xm.optimizer_step(optimizer)
    return model
