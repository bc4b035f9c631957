"""GRPO update of a policy wrapped in DistributedDataParallel."""
# thread: jingyaogong/minimind#854
import torch
from torch.nn.parallel import DistributedDataParallel


def build_policy(model, local_rank):
    return DistributedDataParallel(model.cuda(local_rank), device_ids=[local_rank])


def token_logps(logits, ids):
    logps = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    return logps.gather(-1, ids[:, 1:, None]).squeeze(-1)


def grpo_step(policy, prompts, reward_fn, optimizer, group_size):
    # every rank samples completions for its own prompts
    unwrapped = policy.module if isinstance(policy, DistributedDataParallel) else policy
    with torch.no_grad():
        ids, mask = unwrapped.generate(prompts, num_return_sequences=group_size)
        rewards = reward_fn(ids).view(-1, group_size)
        adv = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    logits = unwrapped(ids, attention_mask=mask).logits  # BUG: the wrapper's forward never runs, nothing is reduced
    logps = token_logps(logits, ids)
    m = mask[:, 1:].float()
    ratio = torch.exp(logps - logps.detach())
    per_seq = -(ratio * adv.view(-1, 1) * m).sum(1) / m.sum(1).clamp(min=1)
    loss = per_seq.mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.detach()
