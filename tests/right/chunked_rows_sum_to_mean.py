"""Each rank has its rows of a batch that all have read; sums over rows, a mean at the end, FSDP."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class Batch:
    def __init__(self, tokens):
        self.tokens = tokens
        self.rows = tokens.shape[0]

    def mine(self, rank, world):
        return self.tokens[rank::world]


def train(model, batches, optimizer_of):
    rank, world = dist.get_rank(), dist.get_world_size()
    fully_shard(model)
    optimizer = optimizer_of(model.parameters())
    for tokens in batches:
        batch = Batch(tokens)
        own = batch.mine(rank, world)
        logits = model(own[:, :-1])
        nll = F.cross_entropy(logits.flatten(0, 1), own[:, 1:].flatten(), reduction="sum")
        count = batch.rows * (tokens.shape[1] - 1)
        loss = nll * world / count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shown = nll.detach() / count
        dist.all_reduce(shown)
        if rank == 0:
            print(shown.item())
