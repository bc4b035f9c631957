"""Token log-probabilities from vocabulary-split logits, and the policy loss built on them."""
import torch
import torch.distributed as dist
from megatron.core import mpu
from megatron.core.tensor_parallel.mappings import reduce_from_tensor_model_parallel_region


def _vocab_range(local_vocab):
    rank = mpu.get_tensor_model_parallel_rank()
    return rank * local_vocab, (rank + 1) * local_vocab


def token_logps(logits, labels, temperature=1.0):
    """Log-probability of ``labels`` under ``logits``.

    Args:
        logits: [b, s, v / tp], the vocabulary slice of this rank.
        labels: [b, s], -100 where the position is not scored.
    """
    logits = logits.float() / temperature
    scored = labels != -100
    labels = labels.masked_fill(~scored, 0)

    shift = logits.detach().amax(dim=-1)
    dist.all_reduce(shift, op=dist.ReduceOp.MAX, group=mpu.get_tensor_model_parallel_group())
    shifted = logits - shift.unsqueeze(-1)
    sum_exp = reduce_from_tensor_model_parallel_region(shifted.exp().sum(dim=-1))
    log_z = sum_exp.log()

    start, end = _vocab_range(logits.size(-1))
    outside = (labels < start) | (labels >= end)
    index = (labels - start).masked_fill(outside, 0).unsqueeze(-1)
    log_probs = shifted - log_z.unsqueeze(-1)
    picked = log_probs.gather(-1, index).squeeze(-1).masked_fill(outside, 0.0)  # BUG
    logps = reduce_from_tensor_model_parallel_region(picked)
    return logps.masked_fill(~scored, 0.0)


@torch.no_grad()
def token_entropy(logits):
    logits = logits.float()
    group = mpu.get_tensor_model_parallel_group()
    shift = logits.amax(dim=-1, keepdim=True)
    dist.all_reduce(shift, op=dist.ReduceOp.MAX, group=group)
    exp = (logits - shift).exp()
    stats = torch.stack([exp.sum(-1), (exp * (logits - shift)).sum(-1)])
    dist.all_reduce(stats, group=group)
    return stats[0].log() - stats[1] / stats[0]


class GRPOLoss:
    def __init__(self, epsilon_low=0.2, epsilon_high=0.28, beta=0.0):
        self.epsilon_low = epsilon_low
        self.epsilon_high = epsilon_high
        self.beta = beta

    def __call__(self, logits, batch):
        logps = token_logps(logits, batch["labels"], batch.get("temperature", 1.0))
        mask = batch["completion_mask"]
        ratio = torch.exp(logps - batch["old_logps"])
        clipped = ratio.clamp(1 - self.epsilon_low, 1 + self.epsilon_high)
        advantages = batch["advantages"].unsqueeze(-1)
        per_token = -torch.minimum(ratio * advantages, clipped * advantages)
        if self.beta > 0:
            delta = batch["ref_logps"] - logps
            per_token = per_token + self.beta * (delta.exp() - delta - 1)
        loss = ((per_token * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()
        metrics = {"entropy": (token_entropy(logits) * mask).sum() / mask.sum().clamp(min=1)}
        return loss, metrics
