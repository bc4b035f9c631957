"""Training step that defers the weight gradient of the output projection to the end of backward."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class _DeferredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, queue):
        ctx.save_for_backward(x, weight)
        ctx.queue = queue
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ctx.queue.append((x.flatten(0, -2), grad.flatten(0, -2)))
        return grad @ weight, None, None


class OutputProjection(nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, hidden))
        nn.init.normal_(self.weight, std=0.02)
        self.queue = []

    def forward(self, x):
        return _DeferredLinear.apply(x, self.weight, self.queue)

    @torch.no_grad()
    def finish_weight_gradient(self):
        if self.weight.grad is None:
            self.weight.grad = torch.zeros_like(self.weight)
        for x, grad in self.queue:
            self.weight.grad.addmm_(grad.T, x)
        self.queue.clear()


class Gpt(nn.Module):
    def __init__(self, vocab, hidden, heads, depth, max_len):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocab, hidden), nn.Embedding(max_len, hidden)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, 0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(hidden)
        self.output = OutputProjection(hidden, vocab)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position(torch.arange(tokens.size(1), device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.size(1), device=tokens.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.output(self.norm(x))


class DataParallel:
    """Gradients are averaged when the step asks for it, in buckets of one parameter."""

    def __init__(self, model, group):
        self.model, self.group = model, group
        for param in model.parameters():
            dist.broadcast(param.data, src=dist.get_global_rank(group, 0), group=group)

    def finish_grad_sync(self):
        handles = []
        for param in self.model.parameters():
            if param.grad is None:
                continue
            param.grad.div_(self.group.size())
            handles.append(dist.all_reduce(param.grad, group=self.group, async_op=True))
        for handle in handles:
            handle.wait()


def forward_backward(model, micro_batches):
    total = 0.0
    for tokens, targets in micro_batches:
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()) / len(micro_batches)
        loss.backward()
        total = total + loss.detach()
    return total


def train_step(replica, optimizer, micro_batches):
    optimizer.zero_grad(set_to_none=False)
    loss = forward_backward(replica.model, micro_batches)
    replica.finish_grad_sync()  # BUG
    replica.model.output.finish_weight_gradient()
    optimizer.step()
    loss.div_(replica.group.size())
    dist.all_reduce(loss, group=replica.group)
    return loss
