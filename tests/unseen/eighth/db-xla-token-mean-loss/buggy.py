"""PyTorch/XLA data-parallel fine-tuning step, loss per target token of the global batch."""
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.distributed import parallel_loader as pl


def train_loop(model, optimizer, scheduler, loader, log_every=50):
    device = xm.xla_device()
    model.to(device).train()
    xm.broadcast_master_param(model)
    for step, batch in enumerate(pl.MpDeviceLoader(loader, device)):
        optimizer.zero_grad()
        labels = batch["labels"]  # already shifted by the collator
        num_targets = (labels != -100).sum().float()
        num_targets = xm.all_reduce(xm.REDUCE_SUM, num_targets)
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        loss_sum = F.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum"
        )
        loss = loss_sum / num_targets  # BUG
        loss.backward()
        xm.optimizer_step(optimizer)
        scheduler.step()
        if step % log_every == 0:
            mean = xm.all_reduce(xm.REDUCE_SUM, loss_sum.detach()) / num_targets
            xm.add_step_closure(lambda s, m: xm.master_print(f"step {s} loss {m.item():.4f}"), (step, mean))
