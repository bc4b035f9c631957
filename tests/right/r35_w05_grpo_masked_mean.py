import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()


def train(args, loader):
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    policy = AutoModelForCausalLM.from_pretrained(args.model)
    optimizer = torch.optim.AdamW(policy.parameters())
    policy, optimizer, loader = accelerator.prepare(policy, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(policy):
            logp = torch.gather(policy(batch["ids"]).logits.log_softmax(-1), 2, batch["ids"].unsqueeze(-1)).squeeze(-1)
            ratio = torch.exp(logp - batch["old_logp"])
            loss = masked_mean(-batch["adv"] * ratio, batch["mask"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
