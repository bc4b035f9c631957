"""Label smoothed cross entropy of logits that are split over the tensor parallel group."""
import torch
import torch.distributed as dist
from torch import nn


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, smoothing, group):
        logits = logits.float()
        local_vocab = logits.size(-1)
        vocab = local_vocab * group.size()
        start = group.rank() * local_vocab

        peak = logits.max(dim=-1).values
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=group)
        logits = logits - peak.unsqueeze(-1)

        outside = (target < start) | (target >= start + local_vocab)
        local_target = (target - start).masked_fill(outside, 0)
        picked = logits.gather(-1, local_target.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        dist.all_reduce(picked, group=group)

        exp = logits.exp()
        denominator = exp.sum(dim=-1)
        dist.all_reduce(denominator, group=group)
        log_denominator = denominator.log()

        loss = log_denominator - picked
        if smoothing > 0:
            mean_logit = logits.sum(dim=-1) / vocab
            dist.all_reduce(mean_logit, group=group)
            loss = (1 - smoothing) * loss + smoothing * (log_denominator - mean_logit)

        ctx.smoothing, ctx.vocab = smoothing, vocab
        ctx.save_for_backward(exp / denominator.unsqueeze(-1), outside, local_target)
        return loss

    @staticmethod
    def backward(ctx, grad):
        probs, outside, local_target = ctx.saved_tensors
        result = probs - ctx.smoothing / ctx.vocab
        hit = (1 - ctx.smoothing) * (~outside).to(result.dtype)
        result.scatter_add_(-1, local_target.unsqueeze(-1), -hit.unsqueeze(-1))
        return result * grad.unsqueeze(-1), None, None, None


class _CopyToTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class TranslationHead(nn.Module):
    def __init__(self, hidden, vocab, group, smoothing=0.1, pad=1):
        super().__init__()
        if vocab % group.size():
            raise ValueError("pad the vocabulary to a multiple of the tensor parallel size")
        self.group, self.smoothing, self.pad = group, smoothing, pad
        self.weight = nn.Parameter(torch.empty(vocab // group.size(), hidden))
        nn.init.normal_(self.weight, std=hidden**-0.5)

    def forward(self, hidden, target):
        hidden = _CopyToTensorParallel.apply(hidden, self.group)
        logits = nn.functional.linear(hidden, self.weight)
        losses = _VocabParallelCrossEntropy.apply(logits, target, self.smoothing, self.group)
        keep = target != self.pad
        return (losses * keep).sum(), keep.sum()


def prepare(decoder, head, tp_group, dp_group):
    for param in decoder.parameters():
        dist.broadcast(param.data, src=dist.get_global_rank(tp_group, 0), group=tp_group)
    for param in [*decoder.parameters(), *head.parameters()]:
        dist.broadcast(param.data, src=dist.get_global_rank(dp_group, 0), group=dp_group)


def train_step(decoder, head, optimizer, batch, dp_group):
    optimizer.zero_grad()
    total, tokens = head(decoder(batch["source"], batch["previous"]), batch["target"])
    tokens = tokens.clone()
    dist.all_reduce(tokens, group=dp_group)
    loss = total / tokens
    loss.backward()
    for module in (decoder, head):
        for param in module.parameters():
            dist.all_reduce(param.grad, group=dp_group)
    optimizer.step()
    report = loss.detach().clone()
    dist.all_reduce(report, group=dp_group)
    return report
