"""Greedy decoding with a vocabulary-parallel head: local maxima are gathered, then compared."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Head(torch.nn.Module):
    def __init__(self, dim, vocab, group):
        super().__init__()
        self.group = group
        self.n, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.part = vocab // self.n
        self.weight = torch.nn.Parameter(torch.empty(self.part, dim))

    def forward(self, h):
        return F.linear(h, self.weight)

    @torch.no_grad()
    def greedy(self, h):
        value, idx = self(h).max(-1)
        idx = idx + self.rank * self.part
        values = [torch.empty_like(value) for _ in range(self.n)]
        ids = [torch.empty_like(idx) for _ in range(self.n)]
        dist.all_gather(values, value, group=self.group)
        dist.all_gather(ids, idx, group=self.group)
        best = torch.stack(values).argmax(0, keepdim=True)
        return torch.stack(ids).gather(0, best)[0]

    @torch.no_grad()
    def sample(self, h, generator):
        logits = self(h).float()
        # Gumbel-max: the largest of all perturbed logits is a sample of the whole softmax
        noise = -torch.empty_like(logits).exponential_(generator=generator).log()
        value, idx = (logits + noise).max(-1)
        pair = torch.stack([value, (idx + self.rank * self.part).to(value.dtype)])
        pairs = [torch.empty_like(pair) for _ in range(self.n)]
        dist.all_gather(pairs, pair, group=self.group)
        pairs = torch.stack(pairs)
        best = pairs[:, 0].argmax(0, keepdim=True)
        return pairs[:, 1].gather(0, best)[0].long()


@torch.no_grad()
def perplexity(model, head, loader, dp_group):
    sums = torch.zeros(2, device="cuda", dtype=torch.float64)
    for ids, labels in loader:
        logits = head(model(ids)).float()
        top = logits.amax(-1)
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=head.group)
        z = (logits - top[..., None]).exp().sum(-1)
        dist.all_reduce(z, group=head.group)
        local = labels - head.rank * head.part
        here = (local >= 0) & (local < head.part)
        picked = logits.gather(-1, local.clamp(0, head.part - 1)[..., None])[..., 0] * here
        dist.all_reduce(picked, group=head.group)
        sums[0] += (z.log() + top - picked).double().sum()
        sums[1] += labels.numel()
    dist.all_reduce(sums, group=dp_group)
    return (sums[0] / sums[1]).exp().item()
