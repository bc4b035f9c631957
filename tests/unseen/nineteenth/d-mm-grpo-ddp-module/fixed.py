"""GRPO update of a small language model. jingyaogong/minimind, issue #853 (trainer/train_grpo.py)."""
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def init_model(model, local_rank):
    return DistributedDataParallel(model.cuda(local_rank), device_ids=[local_rank])


def per_token_logps(logits, input_ids, n_keep):
    logits = logits[:, :-1][:, -n_keep:]
    target = input_ids[:, -n_keep:]
    return F.log_softmax(logits.float(), dim=-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)


def grpo_train_step(model, ref_model, reward_fn, optimizer, prompts, args):
    # prompts: [B, P], other prompts on every rank
    model_unwrapped = model.module if isinstance(model, DistributedDataParallel) else model
    with torch.no_grad():
        outputs = model_unwrapped.generate(
            prompts.repeat_interleave(args.num_generations, dim=0), max_new_tokens=args.max_gen_len
        )
    completion = outputs[:, prompts.size(1):]
    full_mask = (outputs != args.pad_token_id).long()
    n = completion.size(1)

    logits = model(outputs, attention_mask=full_mask).logits
    logps = per_token_logps(logits, outputs, n)
    with torch.no_grad():
        ref_logps = per_token_logps(ref_model(outputs, attention_mask=full_mask).logits, outputs, n)

    rewards = reward_fn(prompts, completion).view(-1, args.num_generations)
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    advantages = advantages.flatten().unsqueeze(1)

    diff = ref_logps - logps
    kl = diff.exp() - diff - 1
    per_token = -(torch.exp(logps - logps.detach()) * advantages - args.beta * kl)
    mask = (completion != args.pad_token_id).float()
    loss = ((per_token * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
