"""Train a causal language model with FSDP and gradient accumulation."""
# PrimeIntellect-ai/OpenDiloco PR 6: clip_grad_norm_ of torch.nn.utils takes the norm of this rank's shards under FSDP.
import functools
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def get_model(path, strategy):
    model = AutoModelForCausalLM.from_pretrained(path)
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    return FSDP(
        model,
        sharding_strategy=ShardingStrategy[strategy],
        auto_wrap_policy=policy,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
        use_orig_params=True,
    )


def train(config, train_dataloader):
    dist.init_process_group("nccl")
    model = get_model(config.path_model, "FULL_SHARD")
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.1, betas=(0.9, 0.95))
    scheduler = get_cosine_schedule_with_warmup(optimizer, config.warmup_steps, config.total_steps)
    steps = config.gradient_accumulation_steps

    model.train()
    loss_batch = 0.0
    for step, batch in enumerate(train_dataloader):
        is_accumulating = (step + 1) % steps != 0
        batch = {k: v.to("cuda") for k, v in batch.items()}
        with model.no_sync() if is_accumulating else nullcontext():
            loss = model(**batch).loss / steps
            loss_batch += loss.detach()
            loss.backward()
        if not is_accumulating:
            model.clip_grad_norm_(1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            dist.all_reduce(loss_batch, op=dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step}: {loss_batch.item()}")
            loss_batch = 0.0
