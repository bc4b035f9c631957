"""GRPO training: roll-outs from the unwrapped model, loss from a second forward pass."""
import torch
from torch.nn.parallel import DistributedDataParallel


def per_token_logps(logits, ids, n_keep):
    logps = torch.log_softmax(logits[:, :-1], dim=-1)
    return logps.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)[:, -n_keep:]


def grpo_train_step(model: DistributedDataParallel, prompts, reward_fn, optimizer, max_gen_len, n_gen):
    model_unwrapped = model.module if isinstance(model, DistributedDataParallel) else model
    with torch.no_grad():
        outputs = model_unwrapped.generate(prompts, max_new_tokens=max_gen_len, num_return_sequences=n_gen)
    completion_ids = outputs[:, prompts.size(1):]
    mask = (outputs != 0).long()

    logits = model(outputs, attention_mask=mask).logits
    logps = per_token_logps(logits, outputs, completion_ids.size(1))
    rewards = reward_fn(completion_ids).view(-1, n_gen)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1)
    loss = -(torch.exp(logps - logps.detach()) * advantages.unsqueeze(1)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
