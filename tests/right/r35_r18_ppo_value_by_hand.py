import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader, value_net):
    accelerator = Accelerator()
    policy = AutoModelForCausalLM.from_pretrained("sft")
    opt_p = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    opt_v = torch.optim.AdamW(value_net.parameters(), lr=1e-5)
    policy, opt_p, loader = accelerator.prepare(policy, opt_p, loader)
    for batch in loader:
        mask = batch["mask"]
        n = accelerator.reduce(mask.sum(), reduction="sum")
        logp = torch.gather(policy(batch["ids"]).logits.log_softmax(-1), 2, batch["ids"].unsqueeze(-1)).squeeze(-1)
        pg_loss = -(logp * batch["adv"] * mask).sum() * accelerator.num_processes / n
        accelerator.backward(pg_loss)
        opt_p.step()
        opt_p.zero_grad()
        v = value_net(batch["features"])
        v_loss = ((v - batch["returns"]) ** 2 * mask).sum() / n
        v_loss.backward()
        for p in value_net.parameters():
            dist.all_reduce(p.grad)
        opt_v.step()
        opt_v.zero_grad()
