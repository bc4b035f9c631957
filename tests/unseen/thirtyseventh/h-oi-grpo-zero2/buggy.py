# thread: https://github.com/allenai/open-instruct/pull/1498
"""Policy update with DeepSpeed ZeRO-2 and a varying number of micro-batches."""
import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F


def deepspeed_config(args):
    return {
        "train_micro_batch_size_per_gpu": args.micro_batch_size,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": args.max_grad_norm,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "overlap_comm": False},
        "zero_force_ds_cpu_optimizer": False,
    }


def build_engine(args, model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=deepspeed_config(args)
    )
    return engine


def logprobs_of(engine, input_ids, attention_mask, temperature):
    logits = engine(input_ids=input_ids, attention_mask=attention_mask).logits
    logits = logits[:, :-1].float() / temperature
    return -F.cross_entropy(
        logits.transpose(1, 2), input_ids[:, 1:], reduction="none"
    )


def clipped_loss(new, old, advantages, args):
    ratio = (new - old).exp()
    clipped = ratio.clamp(1.0 - args.clip_lower, 1.0 + args.clip_higher)
    return torch.maximum(-advantages * ratio, -advantages * clipped)


def split(batch, micro_batch_size):
    size = batch["input_ids"].shape[0]
    for start in range(0, size, micro_batch_size):
        yield {k: v[start : start + micro_batch_size] for k, v in batch.items()}


def update(engine, minibatches, args):
    """Every rank holds the same number of rows in a minibatch."""
    world = dist.get_world_size()
    metrics = []
    for minibatch in minibatches:
        tokens = minibatch["response_mask"][:, 1:].sum().float()
        dist.all_reduce(tokens)
        micro_batches = list(split(minibatch, args.micro_batch_size))
        total = torch.zeros((), device=engine.device)
        for mb in micro_batches:
            mask = mb["response_mask"][:, 1:].float()
            new = logprobs_of(engine, mb["input_ids"], mb["attention_mask"], args.temperature)
            per_token = clipped_loss(new, mb["old_logprobs"], mb["advantages"][:, 1:], args)
            loss = (per_token * mask).sum() / tokens * world
            engine.backward(loss)  # BUG
            total += loss.detach() / world
        engine.step()
        dist.all_reduce(total)
        metrics.append(total.item())
    return sum(metrics) / len(metrics)
