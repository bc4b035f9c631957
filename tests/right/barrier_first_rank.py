"""The first rank downloads and tokenises, the others wait for it: two barriers that match."""
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@contextmanager
def first_rank_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


def load_examples(args, tokenizer, rank):
    if rank not in (-1, 0):
        dist.barrier()
    path = os.path.join(args.data, "cached.pt")
    if os.path.exists(path):
        features = torch.load(path)
    else:
        features = tokenizer(open(os.path.join(args.data, "train.txt")).read())
        if rank in (-1, 0):
            torch.save(features, path)
    if rank == 0:
        dist.barrier()
    return features


def main(args, make_tokenizer, make_model, make_loader):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    with first_rank_first(rank):
        tokenizer = make_tokenizer(args.name)
    features = load_examples(args, tokenizer, rank)
    model = DDP(make_model().cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in make_loader(features):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank != 0:
        return
    torch.save(model.module.state_dict(), "out.pt")
