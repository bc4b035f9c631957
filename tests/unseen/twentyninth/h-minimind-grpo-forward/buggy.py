"""GRPO epoch; the policy is wrapped in DistributedDataParallel by ``main``."""
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def token_logps(logits, ids, n_keep):
    logps = F.log_softmax(logits[:, -n_keep - 1 : -1].float(), dim=-1)
    return logps.gather(-1, ids[:, -n_keep:].unsqueeze(-1)).squeeze(-1)


def grpo_train_epoch(loader, model, ref_model, reward_fn, optimizer, scheduler, args):
    for step, batch in enumerate(loader):
        prompt_ids, prompt_mask = batch["input_ids"].to(args.device), batch["attention_mask"].to(args.device)
        model_unwrapped = model.module if isinstance(model, DistributedDataParallel) else model

        with torch.no_grad():
            outputs = model_unwrapped.generate(
                prompt_ids, attention_mask=prompt_mask, num_return_sequences=args.num_generations
            )
        n_new = outputs.size(1) - prompt_ids.size(1)
        completion_mask = (outputs[:, -n_new:] != args.pad_id).float()
        full_mask = torch.cat([prompt_mask.repeat_interleave(args.num_generations, 0), completion_mask.long()], 1)

        logits = model_unwrapped(outputs, attention_mask=full_mask).logits  # BUG
        per_token_logps = token_logps(logits, outputs, n_new)
        with torch.no_grad():
            ref_logps = token_logps(ref_model(outputs, attention_mask=full_mask).logits, outputs, n_new)

        rewards = reward_fn(outputs).view(-1, args.num_generations)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        kl = torch.exp(ref_logps - per_token_logps) - (ref_logps - per_token_logps) - 1
        ratio = torch.exp(per_token_logps - per_token_logps.detach())
        per_token_loss = -(ratio * advantages.view(-1, 1) - args.beta * kl)
        loss = ((per_token_loss * completion_mask).sum(1) / completion_mask.sum(1).clamp(min=1)).mean()

        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()


def main(model, ref_model, loader, reward_fn, make_optimizer, args):
    model = DistributedDataParallel(model.to(args.device), device_ids=[args.local_rank])
    optimizer, scheduler = make_optimizer(model)
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        grpo_train_epoch(loader, model, ref_model, reward_fn, optimizer, scheduler, args)
