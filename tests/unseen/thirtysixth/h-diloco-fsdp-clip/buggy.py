# thread: https://github.com/PrimeIntellect-ai/OpenDiloco/pull/6
"""Inner training loop of a low-communication trainer, with fully sharded data parallelism."""
import os
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoConfig, AutoModelForCausalLM, get_cosine_schedule_with_warmup
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

SHARDING = {
    "FULL_SHARD": ShardingStrategy.FULL_SHARD,
    "SHARD_GRAD_OP": ShardingStrategy.SHARD_GRAD_OP,
}


class TrainConfig:
    path_model = "PrimeIntellect/llama-150m-fresh"
    lr = 4e-4
    total_batch_size = 512
    per_device_train_batch_size = 32
    warmup_steps = 1000
    total_steps = 88_000
    sharding_strategy = "SHARD_GRAD_OP"
    grad_clip = 1.0


def get_model(config: TrainConfig):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config.path_model))
    wrap = partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    return FSDP(
        model.cuda(),
        sharding_strategy=SHARDING[config.sharding_strategy],
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        auto_wrap_policy=wrap,
        use_orig_params=True,
        device_id=int(os.environ["LOCAL_RANK"]),
    )


def get_loader(dataset, config: TrainConfig, collate_fn):
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    return DataLoader(
        dataset, batch_size=config.per_device_train_batch_size, sampler=sampler, collate_fn=collate_fn
    )


def train(config: TrainConfig, dataset, collate_fn):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world_size = dist.get_world_size()
    accumulation = config.total_batch_size // (config.per_device_train_batch_size * world_size)

    model = get_model(config)
    loader = get_loader(dataset, config, collate_fn)
    inner_optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.1, betas=(0.9, 0.95))
    scheduler = get_cosine_schedule_with_warmup(inner_optimizer, config.warmup_steps, config.total_steps)

    model.train()
    loss_batch = torch.zeros((), device="cuda")
    step, epoch = 0, 0
    while step < config.total_steps:
        loader.sampler.set_epoch(epoch)
        for micro, batch in enumerate(loader):
            real_step, boundary = step + 1, (micro + 1) % accumulation == 0
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            outputs = model(**batch)
            loss = outputs.loss / accumulation
            loss_batch += loss.detach()
            loss.backward()
            if not boundary:
                continue

            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)  # BUG
            inner_optimizer.step()
            scheduler.step()
            inner_optimizer.zero_grad()
            step = real_step

            dist.all_reduce(loss_batch, op=dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step} loss {loss_batch.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")
            loss_batch.zero_()
            if step >= config.total_steps:
                break
        epoch += 1
    dist.destroy_process_group()
