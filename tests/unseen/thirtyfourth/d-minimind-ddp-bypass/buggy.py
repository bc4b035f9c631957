# jingyaogong/minimind, issue 853 / pull request 854 - https://github.com/jingyaogong/minimind/pull/854 (read, also the file)
# The policy is wrapped in DDP, but the forward that carries the loss goes through model.module:
# the reducer is never armed and every rank steps on its own gradients.
"""GRPO epoch of a small language model."""
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def build(model, local_rank):
    return DistributedDataParallel(model, device_ids=[local_rank])


def per_token_logps(logits, ids, keep):
    logp = F.log_softmax(logits[:, :-1, :], dim=-1)
    return logp.gather(2, ids[:, 1:].unsqueeze(-1)).squeeze(-1)[:, -keep:]


def grpo_train_epoch(model, ref_model, loader, rollout_engine, optimizer, beta, grad_clip):
    for batch in loader:
        rollout = rollout_engine.rollout(batch["prompt"])  # this rank's prompts
        outputs, keep = rollout.output_ids, rollout.completion_ids.size(1)
        model_unwrapped = model.module if isinstance(model, DistributedDataParallel) else model
        res = model_unwrapped(outputs, attention_mask=rollout.mask)  # BUG: bypasses DDP.forward
        logps = per_token_logps(res.logits, outputs, keep)
        with torch.no_grad():
            ref_logps = per_token_logps(ref_model(outputs, attention_mask=rollout.mask).logits, outputs, keep)
        delta = ref_logps - logps
        kl = torch.exp(delta) - delta - 1
        ratio = torch.exp(logps - logps.detach())
        token_loss = -(ratio * rollout.advantages.unsqueeze(1) - beta * kl)
        mask = rollout.completion_mask
        loss = ((token_loss * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        optimizer.zero_grad()
