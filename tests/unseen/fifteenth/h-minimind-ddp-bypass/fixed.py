# Reduced from minimind trainer/train_grpo.py (jingyaogong/minimind pull request 854, read).
# The policy is wrapped in DistributedDataParallel; sampling needs the bare module, the loss does not.
# What happens: DDP's reducer is never armed, each rank steps on its own gradient and only rank 0
# is saved.
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def get_per_token_logps(mdl, input_ids, n_keep):
    logits = mdl(input_ids).logits[:, :-1, :]
    logps = F.log_softmax(logits[:, -n_keep:], dim=-1)
    return logps.gather(-1, input_ids[:, -n_keep:].unsqueeze(-1)).squeeze(-1)


def grpo_train_epoch(loader, model, ref_model, reward_fn, optimizer, args):
    model_unwrapped = model.module if isinstance(model, DistributedDataParallel) else model
    for batch in loader:
        prompt_ids = batch["input_ids"].to(args.device)
        with torch.no_grad():
            outputs = model_unwrapped.generate(
                prompt_ids, max_new_tokens=args.max_gen_len, num_return_sequences=args.num_generations
            )
        n_keep = outputs.size(1) - prompt_ids.size(1)
        with torch.no_grad():
            ref_logps = get_per_token_logps(ref_model, outputs, n_keep)
            rewards = reward_fn(outputs).view(-1, args.num_generations)
        adv = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)

        logps = get_per_token_logps(model, outputs, n_keep)
        kl = torch.exp(ref_logps - logps) - (ref_logps - logps) - 1
        per_token_loss = -(torch.exp(logps - logps.detach()) * adv - args.beta * kl)
        mask = (outputs[:, -n_keep:] != args.pad_token_id).float()
        loss = ((per_token_loss * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
        loss.backward()

        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
