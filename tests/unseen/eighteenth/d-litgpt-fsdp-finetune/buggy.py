"""Fine-tuning with FullyShardedDataParallel.

Source: fine-tuning scripts over FSDP (from memory; the FSDP documentation warns of it). Each rank
sees only its shards in model.parameters(). The utility of torch.nn takes the norm of these alone,
so each rank scales its shards by another factor and the whole gradient changes its direction.
"""
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def wrap(model, block_cls, device):
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={block_cls})
    return FSDP(
        model,
        auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        device_id=device,
        use_orig_params=True,
    )


def fit(model, block_cls, loader, loss_fn, args, device):
    model = wrap(model, block_cls, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    for it, (inputs, targets) in enumerate(loader):
        accumulating = (it + 1) % args.accumulate != 0
        logits = model(inputs.to(device))
        loss = loss_fn(logits.flatten(0, 1), targets.to(device).flatten())
        (loss / args.accumulate).backward()
        if accumulating:
            continue
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)  # BUG
        optimizer.step()
        optimizer.zero_grad()

        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"step {(it + 1) // args.accumulate}: loss {mean.item():.3f}, norm {norm:.3f}")
