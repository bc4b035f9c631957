"""Cross entropy fused with the output projection, the vocabulary split over ranks."""
import torch
import torch.distributed as dist
import torch.nn as nn


class _VocabParallelLinearCrossEntropy(torch.autograd.Function):
    """Works through the tokens in blocks, so that the logits never exist as a whole."""

    @staticmethod
    def forward(ctx, e, c, targets, group, block):
        # e: [n, d] equal on all ranks, c: [v / p, d] this rank's rows
        vocab = c.size(0)
        start = dist.get_rank(group) * vocab
        local = targets - start
        owned = (local >= 0) & (local < vocab)
        local = local.clamp(0, vocab - 1)

        maxes = e.new_empty(e.size(0), dtype=torch.float32)
        sums = torch.empty_like(maxes)
        picked = torch.empty_like(maxes)
        for i in range(0, e.size(0), block):
            logits = (e[i:i + block] @ c.t()).float()
            maxes[i:i + block] = logits.amax(dim=-1)
            sums[i:i + block] = torch.exp(logits - maxes[i:i + block, None]).sum(dim=-1)
            picked[i:i + block] = logits.gather(1, local[i:i + block, None]).squeeze(1)

        global_max = maxes.clone()
        dist.all_reduce(global_max, op=dist.ReduceOp.MAX, group=group)
        sums = sums * torch.exp(maxes - global_max)
        dist.all_reduce(sums, op=dist.ReduceOp.SUM, group=group)
        picked = picked * owned
        dist.all_reduce(picked, op=dist.ReduceOp.SUM, group=group)
        lse = global_max + sums.log()

        ctx.save_for_backward(e, c, local, owned, lse)
        ctx.group, ctx.block = group, block
        return lse - picked

    @staticmethod
    def backward(ctx, grad_nll):
        e, c, local, owned, lse = ctx.saved_tensors
        grad_e = torch.empty_like(e, dtype=torch.float32)
        grad_c = torch.zeros_like(c, dtype=torch.float32)
        for i in range(0, e.size(0), ctx.block):
            rows = slice(i, i + ctx.block)
            probs = torch.exp((e[rows] @ c.t()).float() - lse[rows, None])
            probs.scatter_add_(1, local[rows, None], -owned[rows, None].float())
            probs *= grad_nll[rows, None]
            grad_e[rows] = probs @ c.float()
            grad_c += probs.t() @ e[rows].float()
        dist.all_reduce(grad_e, op=dist.ReduceOp.SUM, group=ctx.group)
        return grad_e.to(e.dtype), grad_c.to(c.dtype), None, None, None


class VocabParallelHead(nn.Module):
    def __init__(self, hidden_size, vocab_size, group, block=4096, ignore_index=-100):
        super().__init__()
        self.group, self.block, self.ignore_index = group, block, ignore_index
        self.weight = nn.Parameter(torch.empty(vocab_size // dist.get_world_size(group), hidden_size))
        nn.init.normal_(self.weight, std=hidden_size ** -0.5)

    def forward(self, hidden, labels):
        hidden, labels = hidden.flatten(0, -2), labels.flatten()
        keep = labels != self.ignore_index
        return _VocabParallelLinearCrossEntropy.apply(
            hidden[keep], self.weight, labels[keep], self.group, self.block
        )


class CausalLM(nn.Module):
    """The trunk is replicated over the vocabulary group and sees the same tokens there."""

    def __init__(self, trunk, hidden_size, vocab_size, tp_group):
        super().__init__()
        self.trunk = trunk
        self.head = VocabParallelHead(hidden_size, vocab_size, tp_group)

    def forward(self, input_ids, labels):
        return self.head(self.trunk(input_ids), labels)


def train_step(model, batch, optimizer, dp_group):
    nll = model(batch["input_ids"], batch["labels"])
    count = torch.tensor(nll.numel(), device=nll.device)
    dist.all_reduce(count, group=dp_group)
    loss = nll.sum() / count
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=dp_group)
    optimizer.step()
    optimizer.zero_grad()
    loss = loss.detach()
    dist.all_reduce(loss, group=dp_group)
    return loss
