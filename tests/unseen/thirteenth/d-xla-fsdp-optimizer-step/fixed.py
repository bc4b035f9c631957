# ViT training on TPU with XLA fully sharded data parallelism.
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
from torch_xla.distributed.fsdp import checkpoint_module


def build_model(cfg, make_vit):
    vit = make_vit(cfg)
    for i, block in enumerate(vit.blocks):
        block = checkpoint_module(block.to(xm.xla_device()))
        vit.blocks[i] = FSDP(block, reshard_after_forward=cfg.reshard_after_forward)
    return FSDP(vit.to(xm.xla_device()), flatten_parameters=cfg.flatten_parameters)


def train(cfg, make_vit, loader, loss_fn):
    device = xm.xla_device()
    model = build_model(cfg, make_vit)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    train_loader = pl.MpDeviceLoader(loader, device)
    for epoch in range(cfg.num_epochs):
        for step, (data, target) in enumerate(train_loader):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_fn(model(data), target)
            loss.backward()
            if cfg.clip_grad_norm > 0:
                model.clip_grad_norm_(cfg.clip_grad_norm)
            optimizer.step()
            if step % cfg.log_step_interval == 0:
                reduced = xm.mesh_reduce("loss", loss.item(), lambda v: sum(v) / len(v))
                xm.master_print(f"epoch {epoch} step {step}: loss={reduced:.4f}")
    return model
