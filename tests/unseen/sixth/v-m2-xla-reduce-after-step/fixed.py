"""Manual reduction with torch_xla."""
import torch
import torch_xla.core.xla_model as xm


def train_step(model, batch, loss_fn, optimizer):
    loss = loss_fn(model(batch["x"]), batch["y"])
    loss.backward()
    xm.reduce_gradients(optimizer)
    optimizer.step()
    optimizer.zero_grad()
    xm.mark_step()
