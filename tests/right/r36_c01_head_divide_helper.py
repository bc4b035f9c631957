"""Right: the head is a part of the vocabulary, its size computed by a helper."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

class CopyToRegion(torch.autograd.Function):
    """Identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx, x, tp_group):
        ctx.tp_group = tp_group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.tp_group)
        return grad, None


class RMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, tp_group):
        rank, part = dist.get_rank(tp_group), logits.shape[-1]
        top = logits.max(dim=-1)[0]
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=tp_group)
        exp = (logits - top.unsqueeze(-1)).exp()
        total = exp.sum(dim=-1)
        dist.all_reduce(total, group=tp_group)
        local = target - rank * part
        inside = (local >= 0) & (local < part)
        local = local.clamp(0, part - 1)
        picked = (logits - top.unsqueeze(-1)).gather(-1, local.unsqueeze(-1)).squeeze(-1) * inside
        dist.all_reduce(picked, group=tp_group)
        ctx.save_for_backward(exp / total.unsqueeze(-1), local, inside)
        return total.log() - picked

    @staticmethod
    def backward(ctx, grad):
        probs, local, inside = ctx.saved_tensors
        out = probs.scatter_add(-1, local.unsqueeze(-1), -inside.to(probs.dtype).unsqueeze(-1))
        return out * grad.unsqueeze(-1), None, None


def divide(total, parts):
    assert total % parts == 0, f"{total} is not a multiple of {parts}"
    return total // parts


class Model(nn.Module):
    def __init__(self, vocab, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.embed = nn.Embedding(vocab, hidden)
        self.norm = RMSNorm(hidden)
        self.temperature = nn.Parameter(torch.ones(()))
        self.temperature.sequence_parallel = True
        rows = divide(vocab, dist.get_world_size(tp_group))
        gen = torch.Generator().manual_seed(dist.get_rank(tp_group))
        self.head = nn.Parameter(torch.randn(rows, hidden, generator=gen) * 0.02)

    def forward(self, tokens, labels):
        x = CopyToRegion.apply(self.norm(self.embed(tokens)), self.tp_group)
        logits = F.linear(x, self.head) * self.temperature
        return VocabParallelCrossEntropy.apply(logits.float(), labels, self.tp_group).mean()


def sync_sequence_parallel_grads(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=tp_group)


def get_batch(step, seq, batch, vocab):
    gen = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, vocab, (seq + 1, batch), generator=gen).cuda()
    return tokens[:-1], tokens[1:]


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    tp_group = dist.new_group(list(range(dist.get_world_size())))
    torch.manual_seed(7)
    model = Model(1024, 256, tp_group).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(100):
        tokens, labels = get_batch(step, 512, 4, 1024)
        loss = model(tokens, labels)
        loss.backward()
        sync_sequence_parallel_grads(model, tp_group)
        opt.step()
        opt.zero_grad()


if __name__ == "__main__":
    main()
