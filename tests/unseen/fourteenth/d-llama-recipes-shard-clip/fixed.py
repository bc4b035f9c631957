# Reduces llama-recipes' train loop: under FULL_SHARD each rank holds a slice of every gradient, and the slices are
# clipped by the norm of the slice instead of that of the whole gradient.
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.optim.lr_scheduler import StepLR


def setup():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def train(model, train_dataloader, optimizer, scheduler, cfg):
    for epoch in range(cfg.num_epochs):
        train_dataloader.sampler.set_epoch(epoch)
        for step, batch in enumerate(train_dataloader):
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss / cfg.gradient_accumulation_steps
            loss.backward()
            if (step + 1) % cfg.gradient_accumulation_steps == 0:
                if cfg.gradient_clipping and cfg.gradient_clipping_threshold > 0.0:
                    model.clip_grad_norm_(cfg.gradient_clipping_threshold)
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()


def main(build_model, build_loader, cfg):
    setup()
    torch.manual_seed(cfg.seed)
    model = FSDP(build_model(), sharding_strategy=ShardingStrategy.FULL_SHARD,
                 device_id=torch.cuda.current_device(), limit_all_gathers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    scheduler = StepLR(optimizer, step_size=1, gamma=cfg.gamma)
    train(model, build_loader(cfg, dist.get_rank(), dist.get_world_size()), optimizer, scheduler, cfg)
