"""World size from the environment, kept in the arguments."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--accum", type=int, default=4)
    args = p.parse_args()
    args.rank = int(os.environ.get("RANK", 0))
    args.world_size = int(os.environ.get("WORLD_SIZE", 1))
    args.distributed = args.world_size > 1
    return args


def reduce_tensor(t, n):
    rt = t.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    rt /= n
    return rt


def allreduce_grads(model, args):
    if not args.distributed:
        return
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch._utils._flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    flat.div_(args.world_size)
    for g, s in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
        g.copy_(s)


def train(args, model, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        (loss / args.accum).backward()
        if (i + 1) % args.accum:
            continue
        allreduce_grads(model, args)
        optimizer.step()
        optimizer.zero_grad()
        shown = reduce_tensor(loss.detach(), args.world_size) if args.distributed else loss.detach()
        if args.rank == 0:
            print(i, shown.item())


if __name__ == "__main__":
    from recipe import loader, net

    args = parse()
    if args.distributed:
        dist.init_process_group("nccl")
    train(args, net.cuda(), loader)
