"""Pre-training loop where only the first rank of a tensor-parallel group reads data."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader


class PretrainingBatchSampler:
    def __init__(self, total_samples, micro_batch_size, dp_rank, dp_size, seed):
        self.total_samples, self.micro_batch_size = total_samples, micro_batch_size
        self.dp_rank, self.dp_size = dp_rank, dp_size
        self.seed, self.epoch = seed, 0

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.total_samples, generator=g).tolist()
        stride = self.micro_batch_size * self.dp_size
        for start in range(0, self.total_samples - stride + 1, stride):
            begin = start + self.dp_rank * self.micro_batch_size
            yield order[begin:begin + self.micro_batch_size]


class TransformerStack(nn.Module):
    """The layers hold tensor-parallel attention and MLP; a layer is left out with some probability."""

    def __init__(self, layers, layerdrop):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.layerdrop = layerdrop

    def forward(self, hidden):
        for layer in self.layers:
            keep = not self.training or torch.rand(()).item() >= self.layerdrop
            if keep:
                hidden = layer(hidden)
        return hidden


def build_loader(dataset, args, dp_rank, dp_size, tp_rank):
    if tp_rank != 0:
        return None
    sampler = PretrainingBatchSampler(len(dataset), args.micro_batch_size, dp_rank, dp_size, args.seed)
    return DataLoader(
        dataset, batch_sampler=sampler, num_workers=args.num_workers, pin_memory=True,
        generator=torch.Generator().manual_seed(args.seed),
    )


def get_batch(iterator, args, tp_rank, tp_group):
    src = dist.get_global_rank(tp_group, 0)
    tokens = torch.empty(args.micro_batch_size, args.seq_length + 1, dtype=torch.long, device="cuda")
    if tp_rank == 0:
        tokens.copy_(next(iterator)["text"])
    dist.broadcast(tokens, src, group=tp_group)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def allreduce_gradients(model, dp_group):
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        dist.all_reduce(p.grad, group=dp_group)
        p.grad /= dist.get_world_size(dp_group)


def train(model, dataset, optimizer, args, tp_group, dp_group):
    tp_rank = dist.get_rank(tp_group)
    dp_rank, dp_size = dist.get_rank(dp_group), dist.get_world_size(dp_group)
    loader = build_loader(dataset, args, dp_rank, dp_size, tp_rank)
    steps_per_epoch = len(dataset) // (args.micro_batch_size * dp_size)

    # the decisions about layers are the same on all ranks
    torch.manual_seed(args.seed)
    for epoch in range(args.epochs):
        if loader is not None:
            loader.batch_sampler.epoch = epoch
        iterator = iter(loader) if loader is not None else None
        for _ in range(steps_per_epoch):
            tokens, labels = get_batch(iterator, args, tp_rank, tp_group)
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
            loss.backward()
            allreduce_gradients(model, dp_group)
            optimizer.step()
            optimizer.zero_grad()
