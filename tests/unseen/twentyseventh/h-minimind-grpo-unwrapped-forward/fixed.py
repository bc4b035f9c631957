"""GRPO update of a policy wrapped in DistributedDataParallel."""
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def per_token_logps(model, input_ids, attention_mask, n_keep):
    logits = model(input_ids, attention_mask=attention_mask).logits[:, :-1]
    logits = logits[:, -n_keep:].float()
    targets = input_ids[:, -n_keep:].unsqueeze(-1)
    return F.log_softmax(logits, dim=-1).gather(-1, targets).squeeze(-1)


def train_epoch(model, ref_model, reward_fn, loader, optimizer, args):
    model = DistributedDataParallel(model, device_ids=[args.local_rank])
    policy = model.module
    for prompts in loader:
        with torch.no_grad():
            outputs = policy.generate(
                **prompts, max_new_tokens=args.max_gen_len, num_return_sequences=args.num_generations
            )
            n_keep = outputs.size(1) - prompts["input_ids"].size(1)
            attention_mask = (outputs != args.pad_id).long()
            ref_logps = per_token_logps(ref_model, outputs, attention_mask, n_keep)
            rewards = reward_fn(outputs).view(-1, args.num_generations)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)

        logps = per_token_logps(model, outputs, attention_mask, n_keep)
        kl = torch.exp(ref_logps - logps) - (ref_logps - logps) - 1
        mask = attention_mask[:, -n_keep:]
        ratio = torch.exp(logps - logps.detach())
        token_loss = -(ratio * advantages.view(-1, 1) - args.beta * kl)
        loss = ((token_loss * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
