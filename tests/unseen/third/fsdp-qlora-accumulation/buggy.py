"""QLoRA training with FSDP and gradient accumulation."""
# Source: AnswerDotAI/fsdp_qlora pull request 6 (confirmed from the thread; code from memory)
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


def wrap(model, wrapping_policy, rank):
    return FSDP(
        model,
        auto_wrap_policy=wrapping_policy,
        sharding_strategy=ShardingStrategy.NO_SHARD,
        use_orig_params=False,
        device_id=rank,
        limit_all_gathers=True,
    )


def fsdp_main(rank, args, model, wrapping_policy, dataloader, make_optimizer, log):
    model = wrap(model, wrapping_policy, rank)
    optimizer, lr_scheduler = make_optimizer(model)
    accumulation = args["gradient_accumulation_steps"]
    n_batches = len(dataloader) - len(dataloader) % accumulation

    for epoch in range(args["num_epochs"]):
        model.train()
        ddp_loss = torch.zeros(2, device=rank)
        for batch_idx, batch in enumerate(dataloader):
            if batch_idx >= n_batches:
                break
            accumulate_grads = (batch_idx + 1) % accumulation != 0
            sync_context = model.no_sync() if args["no_sync"] and accumulate_grads else nullcontext()
            with sync_context:
                loss = model(
                    batch["input_ids"].to(rank),
                    labels=batch["labels"].to(rank),
                    attention_mask=batch["attention_mask"].to(rank),
                ).loss
                loss = loss / accumulation
                loss.backward()

            bs = batch["input_ids"].size(0)
            ddp_loss[0] += loss.detach() * bs * accumulation
            ddp_loss[1] += bs

            if batch_idx % accumulation == 0:  # BUG
                if args["grad_norm"] is not None:
                    model.clip_grad_norm_(args["grad_norm"], norm_type=2.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad(set_to_none=True)

        dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
        if rank == 0:
            log({"epoch": epoch, "loss": (ddp_loss[0] / ddp_loss[1]).item()})
