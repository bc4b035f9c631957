"""the branch of rank 0 alone is where there is one rank, asserted."""
import torch.distributed as dist


def evaluate(model, batches):
    total = sum(model(batch).sum() for batch in batches)
    dist.all_reduce(total)
    return total


def train(model, batches):
    if dist.get_world_size() == 1 and dist.get_rank() == 0:
        print(evaluate(model, batches))


def debug(loss):
    assert dist.get_world_size() == 1, "for debugging on one rank"
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
        print(loss)
