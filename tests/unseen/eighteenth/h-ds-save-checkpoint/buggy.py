"""Training loop with DeepSpeed and regular checkpoints.

Source: deepspeedai/DeepSpeed, pull request #801 (issue #797). save_checkpoint is collective: each
rank writes its part of the optimizer and all meet in barriers. Called on rank 0 alone it hangs.
"""
import json
import os

import deepspeed
import torch.distributed as dist


ds_config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
}


def write_progress(save_dir, step, loss):
    with open(os.path.join(save_dir, "progress.jsonl"), "a") as f:
        f.write(json.dumps({"step": step, "loss": loss}) + "\n")


def train(model, loader, save_dir, save_every):
    engine, _, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=ds_config
    )
    for batch in loader:
        batch = {k: v.to(engine.device) for k, v in batch.items()}
        loss = engine(**batch).loss
        engine.backward(loss)
        boundary = engine.is_gradient_accumulation_boundary()
        engine.step()
        if not boundary or engine.global_steps % save_every != 0:
            continue

        mean = loss.detach().float().clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        if dist.get_rank() == 0:
            write_progress(save_dir, engine.global_steps, mean.item())
            engine.save_checkpoint(save_dir, tag=f"step{engine.global_steps}")  # BUG
    return engine
