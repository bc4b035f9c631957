"""Sum the gradients of the norm weights over the tensor-parallel group in fp32 (bf16 model, sequence parallel)."""
import torch
import torch.distributed as dist


class SequenceParallelGradReducer:
    """The norms see seq / tp tokens on each rank; all other weights are sharded or see the full sequence."""

    def __init__(self, module, tp_group, patterns=("norm",)):
        self.group = tp_group
        self.params = [
            p
            for name, p in module.named_parameters()
            if p.requires_grad and any(pat in name for pat in patterns)
        ]

    @torch.no_grad()
    def step(self):
        if dist.get_world_size(group=self.group) == 1:
            return
        for p in self.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad.to(torch.float32), group=self.group)  # BUG


def train_batch(model, reducer, optimizer, micro_batches, max_norm, clip_fn):
    total = 0.0
    for mb in micro_batches:
        loss = model(**mb).loss / len(micro_batches)
        loss.backward()
        total += loss.detach()
    reducer.step()
    clip_fn(model, max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return total
