"""GRPO policy loss from logits that are split over the tensor parallel group."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F


@dataclasses.dataclass
class GrpoConfig:
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_coef: float = 0.02


class SumOverVocabShards(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class CopyToVocabShards(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def token_log_probs(logits, targets, group):
    logits = logits.float()
    width = logits.size(-1)
    first = group.rank() * width
    peak = logits.detach().amax(dim=-1)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - peak.unsqueeze(-1)
    owned = (targets >= first) & (targets < first + width)
    local = torch.where(owned, targets - first, torch.zeros_like(targets))
    picked = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1)
    picked = torch.where(owned, picked, torch.zeros_like(picked))
    parts = [torch.empty_like(picked) for _ in range(group.size())]
    dist.all_gather(parts, picked.contiguous(), group=group)  # BUG
    picked = torch.stack(parts).sum(dim=0)
    normalizer = SumOverVocabShards.apply(shifted.exp().sum(dim=-1), group).log()
    return picked - normalizer


class GrpoTrainer:
    def __init__(self, decoder, head_weight, optimizer, cfg, tp_group, dp_group):
        self.decoder, self.head_weight = decoder, head_weight
        self.optimizer, self.cfg = optimizer, cfg
        self.tp_group, self.dp_group = tp_group, dp_group
        self.params = [*decoder.parameters(), head_weight]

    def policy(self, tokens, targets):
        hidden = CopyToVocabShards.apply(self.decoder(tokens), self.tp_group)
        logits = F.linear(hidden, self.head_weight)
        return token_log_probs(logits, targets, self.tp_group)

    def loss(self, batch):
        log_probs = self.policy(batch["tokens"], batch["targets"])
        ratio = (log_probs - batch["old_log_probs"]).exp()
        advantage = batch["advantages"].unsqueeze(-1)
        bounded = ratio.clamp(1 - self.cfg.clip_low, 1 + self.cfg.clip_high)
        gain = torch.minimum(ratio * advantage, bounded * advantage)
        gap = batch["ref_log_probs"] - log_probs
        kl = gap.exp() - gap - 1
        return ((self.cfg.kl_coef * kl - gain) * batch["mask"]).sum()

    def step(self, batch):
        tokens = batch["mask"].sum().float()
        dist.all_reduce(tokens, group=self.dp_group)
        loss = self.loss(batch) / tokens
        self.optimizer.zero_grad()
        loss.backward()
        for param in self.params:
            dist.all_reduce(param.grad, group=self.dp_group)
        self.optimizer.step()
        report = loss.detach().clone()
        dist.all_reduce(report, group=self.dp_group)
        return report
