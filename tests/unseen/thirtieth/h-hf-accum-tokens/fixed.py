"""Supervised fine-tuning with accelerate: variable-length answers, gradient accumulation."""
import contextlib
import itertools

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class SFTCollator:
    def __init__(self, tokenizer, max_length):
        self.tokenizer, self.max_length = tokenizer, max_length

    def __call__(self, examples):
        width = min(max(len(e["input_ids"]) for e in examples), self.max_length)
        input_ids, labels = [], []
        for e in examples:
            ids = e["input_ids"][:width]
            lab = ([-100] * e["prompt_len"] + e["input_ids"][e["prompt_len"]:])[:width]
            input_ids.append(ids + [self.tokenizer.pad_token_id] * (width - len(ids)))
            labels.append(lab + [-100] * (width - len(lab)))
        input_ids, labels = torch.tensor(input_ids), torch.tensor(labels)
        return {
            "input_ids": input_ids,
            "attention_mask": (input_ids != self.tokenizer.pad_token_id).long(),
            "labels": labels,
        }


def causal_lm_loss(logits, labels, reduction):
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(),
        ignore_index=-100, reduction=reduction,
    )


def main(args, dataset):
    accelerator = Accelerator(mixed_precision="bf16")
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = DataLoader(
        dataset, batch_size=args.batch_size, shuffle=True, drop_last=True,
        collate_fn=SFTCollator(tokenizer, args.max_length),
    )
    scheduler = get_cosine_schedule_with_warmup(optimizer, args.warmup, args.max_steps)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    iterator = itertools.chain.from_iterable(itertools.repeat(loader))
    model.train()
    for step in range(args.max_steps):
        batches = list(itertools.islice(iterator, args.gradient_accumulation_steps))
        num_items = sum((b["labels"][:, 1:] != -100).sum() for b in batches)
        num_items = accelerator.gather(num_items).sum()

        total = torch.zeros((), device=accelerator.device)
        for i, batch in enumerate(batches):
            last = i == len(batches) - 1
            with contextlib.nullcontext() if last else accelerator.no_sync(model):
                logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
                loss = causal_lm_loss(logits, batch["labels"], reduction="sum") / num_items
                accelerator.backward(loss * accelerator.num_processes)
                total += loss.detach() * accelerator.num_processes
        accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

        if step % args.log_every == 0:
            mean_loss = accelerator.reduce(total, reduction="mean").item()
            accelerator.print(f"step {step} loss {mean_loss:.4f} tokens {num_items.item()}")
