"""GRPO training loop under DistributedDataParallel (jingyaogong/minimind#854)."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train_epoch(policy, ref_model, loader, optimizer, rollout, beta, device):
    model = DDP(policy, device_ids=[device])
    for batch in loader:
        unwrapped = model.module if isinstance(model, DDP) else model
        ids, mask, advantages = rollout(unwrapped, batch)
        logits = model(ids).logits[:, :-1]
        logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        with torch.no_grad():
            ref_logits = ref_model(ids).logits[:, :-1]
            ref_logps = ref_logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        kl = torch.exp(ref_logps - logps) - (ref_logps - logps) - 1
        ratio = torch.exp(logps - logps.detach())
        loss = -((ratio * advantages[:, None] - beta * kl) * mask[:, 1:]).sum(1) / mask[:, 1:].sum(1)
        loss.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
