"""RLHF: sampling goes around the wrapper under no_grad, the update goes through it."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Policy(torch.nn.Module):
    def __init__(self, lm):
        super().__init__()
        self.lm = lm

    def logp(self, ids):
        logits = self.lm(ids)[:, :-1]
        return logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)

    def forward(self, ids):
        return self.logp(ids)

    @torch.no_grad()
    def generate(self, prompt, n):
        ids = prompt
        for _ in range(n):
            nxt = self.lm(ids)[:, -1].softmax(-1).multinomial(1)
            ids = torch.cat([ids, nxt], dim=1)
        return ids


def rollout(model, ref, reward, prompt, n):
    policy = model.module
    with torch.no_grad():
        ids = policy.generate(prompt, n)
        logp = policy.logp(ids)
        kl = logp - ref.logp(ids)
        r = reward(ids)
    return ids, logp, r - 0.05 * kl.sum(1)


def train(net, ref, reward, prompts, n=64):
    model = DDP(net.cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    baseline = torch.zeros((), device="cuda")
    for prompt in prompts:
        ids, old, r = rollout(model, ref, reward, prompt.cuda(), n)
        mean = r.mean()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        baseline = 0.9 * baseline + 0.1 * mean
        ratio = (model(ids) - old).exp()
        loss = -(ratio * (r - baseline)[:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
