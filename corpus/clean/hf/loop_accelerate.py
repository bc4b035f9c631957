"""A script with accelerate: the number of tokens of a global batch is gathered first, the loss is a sum, and the mean of the wrapper is undone."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup


def evaluate(model, loader, accelerator):
    model.eval()
    losses = []
    for batch in loader:
        with torch.no_grad():
            loss = model(**batch).loss
        losses.append(accelerator.gather_for_metrics(loss.repeat(batch["input_ids"].shape[0])))
    model.train()
    return torch.exp(torch.cat(losses).mean()).item()


def main(args, train_set, eval_set, collate):
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate, mixed_precision="bf16")
    set_seed(args.seed)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train_loader = DataLoader(train_set, shuffle=True, collate_fn=collate, batch_size=args.batch)
    eval_loader = DataLoader(eval_set, collate_fn=collate, batch_size=args.batch)
    scheduler = get_linear_schedule_with_warmup(optimizer, 100, args.steps)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    criterion = torch.nn.CrossEntropyLoss(reduction="sum", ignore_index=-100)
    iterator = iter(train_loader)
    for step in range(args.steps):
        samples = [next(iterator) for _ in range(args.accumulate)]
        local = sum((batch["labels"][:, 1:] != -100).sum() for batch in samples)
        num_items = accelerator.gather(local).sum().item()
        shown = torch.zeros((), device=accelerator.device)
        for batch in samples:
            with accelerator.accumulate(model):
                logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
                loss = criterion(logits[:, :-1].flatten(0, 1).float(), batch["labels"][:, 1:].flatten())
                # `backward` divides by the accumulation, the wrapper by the number of processes.
                loss = loss * accelerator.gradient_accumulation_steps * accelerator.num_processes / num_items
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            shown += loss.detach()
        mean = accelerator.reduce(shown, reduction="mean")
        accelerator.print(f"{step}: {mean.item() / args.accumulate:.4f}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        args.out, is_main_process=accelerator.is_main_process, save_function=accelerator.save
    )
    return evaluate(model, eval_loader, accelerator)
