"""Vocab-parallel cross entropy with z-loss for a tensor-parallel language model head."""
import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F
from torch import nn


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


class _ReduceFromTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def parallel_log_sum_exp(logits: torch.Tensor, group) -> torch.Tensor:
    """log(sum(exp)) over a vocabulary dimension that is split over `group`."""
    with torch.no_grad():
        logits_max = logits.max(dim=-1).values
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
    sum_exp = (logits - logits_max.unsqueeze(-1)).exp().sum(dim=-1)
    sum_exp = _ReduceFromTensorParallel.apply(sum_exp, group)
    return sum_exp.log() + logits_max


def parallel_predicted_logits(logits, targets, vocab_start, group):
    local_targets = targets - vocab_start
    owned = (local_targets >= 0) & (local_targets < logits.size(-1))
    local_targets = local_targets.masked_fill(~owned, 0)
    predicted = logits.gather(-1, local_targets.unsqueeze(-1)).squeeze(-1).masked_fill(~owned, 0.0)
    return _ReduceFromTensorParallel.apply(predicted, group)


class TensorParallelLM(nn.Module):
    def __init__(self, vocab_size, hidden_size, z_loss_factor, group):
        super().__init__()
        self.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        self.vocab_start = rank * (vocab_size // size)
        self.z_loss_factor = z_loss_factor
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        up = torch.randn(4 * hidden_size, hidden_size) * 0.02
        down = torch.randn(hidden_size, 4 * hidden_size) * 0.02
        head = torch.randn(vocab_size, hidden_size) * 0.02
        self.up = nn.Parameter(up.chunk(size, dim=0)[rank].clone())
        self.down = nn.Parameter(down.chunk(size, dim=1)[rank].clone())
        self.head = nn.Parameter(head.chunk(size, dim=0)[rank].clone())
        self.final_norm = nn.LayerNorm(hidden_size)

    def forward(self, tokens, targets):
        hidden = self.embedding(tokens)
        branch = _CopyToTensorParallel.apply(self.norm(hidden), self.group)
        branch = F.linear(F.gelu(F.linear(branch, self.up)), self.down)
        hidden = hidden + _ReduceFromTensorParallel.apply(branch, self.group)
        hidden = _CopyToTensorParallel.apply(self.final_norm(hidden), self.group)
        logits = F.linear(hidden, self.head).float()

        log_z = parallel_log_sum_exp(logits, self.group)
        predicted = parallel_predicted_logits(logits, targets, self.vocab_start, self.group)
        lm_loss = (log_z - predicted).mean()
        z_loss = self.z_loss_factor * log_z.square().mean()
        return lm_loss + z_loss, {"lm_loss": lm_loss.detach(), "z_loss": z_loss.detach()}


def build_groups(tp_size):
    """Consecutive ranks form a tensor-parallel group, strided ranks a data-parallel one."""
    world, rank = dist.get_world_size(), dist.get_rank()
    tp_group = dp_group = None
    for start in range(0, world, tp_size):
        ranks = list(range(start, start + tp_size))
        group = dist.new_group(ranks)
        tp_group = group if rank in ranks else tp_group
    for offset in range(tp_size):
        ranks = list(range(offset, world, tp_size))
        group = dist.new_group(ranks)
        dp_group = group if rank in ranks else dp_group
    return tp_group, dp_group


def main(tp_size=2, vocab_size=512, hidden_size=64, steps=10, seed=11):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    tp_group, dp_group = build_groups(tp_size)
    dp_size = dist.get_world_size(dp_group)

    torch.manual_seed(seed)
    model = TensorParallelLM(vocab_size, hidden_size, 1e-3, tp_group).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed + dist.get_rank(dp_group))
    for step in range(steps):
        batch = torch.randint(vocab_size, (4, 65), generator=generator).to(device)
        loss, metrics = model(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for param in model.parameters():
            dist.all_reduce(param.grad, group=dp_group)
            param.grad.div_(dp_size)
        optimizer.step()
        for value in metrics.values():
            dist.all_reduce(value, group=dp_group)
            value.div_(dp_size)
        if dist.get_rank() == 0:
            print(f"step {step} " + " ".join(f"{k} {v.item():.5f}" for k, v in metrics.items()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
