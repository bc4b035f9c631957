"""Policy gradient step on sequences that are split over the context parallel group."""
import dataclasses

import torch
import torch.distributed as dist


@dataclasses.dataclass
class Groups:
    dp: dist.ProcessGroup
    cp: dist.ProcessGroup
    dp_cp: dist.ProcessGroup


@dataclasses.dataclass
class Batch:
    """Slices of the context parallel rank, [batch, seq / cp]."""

    tokens: torch.Tensor
    targets: torch.Tensor
    old_log_probs: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor


def split_for_context_parallel(full, group):
    """Every rank gets one chunk of the first and the mirrored one of the second half."""
    chunks = full.chunk(2 * group.size(), dim=1)
    rank = group.rank()
    return torch.cat([chunks[rank], chunks[2 * group.size() - 1 - rank]], dim=1)


def masked_whiten(values, mask, group, eps=1e-8):
    mask = mask.to(values.dtype)
    stats = torch.stack([(values * mask).sum(), (values.square() * mask).sum(), mask.sum()])
    dist.all_reduce(stats, group=group)
    total, squares, count = stats
    mean = total / count
    variance = squares / count - mean.square()
    variance = variance * count / (count - 1).clamp(min=1)
    return (values - mean) * torch.rsqrt(variance.clamp(min=0) + eps) * mask


def make_batch(rollout, groups, discount):
    """rollout: full sequences of this data parallel rank."""
    rewards = rollout["token_rewards"] * rollout["mask"]
    steps = rewards.size(1)
    returns = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(steps)):
        running = rewards[:, t] + discount * running
        returns[:, t] = running
    fields = dict(
        tokens=rollout["tokens"],
        targets=rollout["targets"],
        old_log_probs=rollout["log_probs"],
        advantages=returns - rollout["values"],
        mask=rollout["mask"],
    )
    batch = Batch(**{k: split_for_context_parallel(v, groups.cp) for k, v in fields.items()})
    batch.advantages = masked_whiten(batch.advantages, batch.mask, groups.dp_cp)
    return batch


def policy_loss(log_probs, batch, clip):
    ratio = (log_probs - batch.old_log_probs).exp()
    plain = ratio * batch.advantages
    clipped = ratio.clamp(1 - clip, 1 + clip) * batch.advantages
    return -(torch.minimum(plain, clipped) * batch.mask).sum()


class PolicyTrainer:
    def __init__(self, model, optimizer, groups, clip=0.2, discount=1.0, max_norm=1.0):
        self.model, self.optimizer, self.groups = model, optimizer, groups
        self.clip, self.discount, self.max_norm = clip, discount, max_norm

    def update(self, rollout):
        batch = make_batch(rollout, self.groups, self.discount)
        tokens = batch.mask.sum().float()
        dist.all_reduce(tokens, group=self.groups.dp_cp)
        logits = self.model(batch.tokens).float()
        log_probs = logits.log_softmax(-1).gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)
        loss = policy_loss(log_probs, batch, self.clip) / tokens
        self.optimizer.zero_grad()
        loss.backward()
        params = list(self.model.parameters())
        for param in params:
            dist.all_reduce(param.grad, group=self.groups.dp_cp)
        torch.nn.utils.clip_grad_norm_(params, self.max_norm)
        self.optimizer.step()
        report = loss.detach().clone()
        dist.all_reduce(report, group=self.groups.dp_cp)
        return report
