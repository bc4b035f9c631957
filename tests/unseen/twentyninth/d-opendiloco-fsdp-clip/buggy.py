"""DiLoCo worker: inner steps with FSDP inside the node, outer steps over the swarm."""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy


def build_model(model, local_rank, wrap_policy):
    return FSDP(
        model,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=wrap_policy,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        device_id=local_rank,
        use_orig_params=True,
    )


def train(model, loader, wrap_policy, local_rank, outer_step, config):
    model = build_model(model, local_rank, wrap_policy)
    inner_optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.1, betas=(0.9, 0.95))
    accumulation = config.gradient_accumulation_steps

    model.train()
    for step, batch in enumerate(loader):
        batch = {key: value.to(local_rank) for key, value in batch.items()}
        is_accumulating = (step + 1) % accumulation != 0
        loss = model(**batch).loss / accumulation
        loss.backward()
        if is_accumulating:
            continue

        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # BUG
        inner_optimizer.step()
        inner_optimizer.zero_grad()

        if ((step + 1) // accumulation) % config.local_steps == 0:
            outer_step(model)
