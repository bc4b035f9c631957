"""Inner training loop of DiLoCo with an FSDP model.

PrimeIntellect-ai/OpenDiloco e4e4f8656458, open_diloco/train_fsdp.py
"""
import functools
from contextlib import nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def train(config, model, train_dataloader, get_scheduler):
    assert config.total_batch_size % config.batch_size == 0
    gradient_accumulation_steps = config.total_batch_size // config.batch_size

    model = FSDP(
        model,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        mixed_precision=MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16),
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.1, betas=(0.9, 0.95))
    scheduler = get_scheduler(optimizer)
    scaler = ShardedGradScaler()

    model.train()
    for step, batch in enumerate(train_dataloader):
        is_accumulating = bool((step + 1) % gradient_accumulation_steps)
        for key in batch.keys():
            batch[key] = batch[key].to("cuda")

        with model.no_sync() if is_accumulating else nullcontext():
            outputs = model(**batch)
            loss = outputs.loss / gradient_accumulation_steps
            scaler.scale(loss).backward()

        if not is_accumulating:
            scaler.unscale_(optimizer=optimizer)
            model.clip_grad_norm_(1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad()
