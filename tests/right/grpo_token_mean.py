"""GRPO with a token mean over the global batch, under FSDP2 (which averages over data-parallel ranks)."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def group_advantages(rewards, group_size):
    r = rewards.view(-1, group_size)
    return ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-6)).flatten()


def policy_loss(logp, old_logp, advantages, mask, clip=0.2):
    ratio = (logp - old_logp.detach()).exp()
    adv = advantages[:, None]
    unclipped = ratio * adv
    clipped = ratio.clamp(1 - clip, 1 + clip) * adv
    return -(torch.minimum(unclipped, clipped) * mask).sum()


class Trainer:
    def __init__(self, model, mesh, lr):
        self.model = fully_shard(model, mesh=mesh)
        self.dp_group = mesh.get_group()
        self.dp_size = mesh.size()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)

    def logp(self, batch):
        logits = self.model(batch["input_ids"])[:, :-1]
        logp = logits.log_softmax(-1)
        return logp.gather(-1, batch["input_ids"][:, 1:, None]).squeeze(-1)

    def update(self, micro_batches):
        tokens = sum(b["mask"].sum() for b in micro_batches)
        dist.all_reduce(tokens, group=self.dp_group)
        stats = []
        for b in micro_batches:
            loss = policy_loss(self.logp(b), b["old_logp"], b["advantages"], b["mask"])
            scaled = loss * self.dp_size / tokens
            scaled.backward()
            stats.append(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()
        total = torch.stack(stats).sum()
        dist.all_reduce(total, group=self.dp_group)
        return (total / tokens).item()
