"""Tests of collectives, on tensors that are equal on all ranks and on tensors that hold the rank."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def check_all_reduce(rank, size, device):
    ones = torch.ones(4, device=device)
    dist.all_reduce(ones)
    assert torch.equal(ones, torch.full((4,), float(size), device=device))
    ranks = torch.full((4,), float(rank), device=device)
    dist.all_reduce(ranks, op=dist.ReduceOp.MAX)
    assert torch.equal(ranks, torch.full((4,), float(size - 1), device=device))
    twice = torch.arange(4, device=device)
    for _ in range(2):
        dist.all_reduce(twice)
    assert torch.equal(twice, torch.arange(4, device=device) * size * size)


def check_all_gather(rank, size, device):
    tensor = torch.tensor([rank], device=device)
    out = [torch.zeros_like(tensor) for _ in range(size)]
    dist.all_gather(out, tensor)
    assert torch.cat(out).tolist() == list(range(size))
    flat = torch.empty(size, dtype=tensor.dtype, device=device)
    dist.all_gather_into_tensor(flat, tensor)
    assert torch.equal(flat, torch.arange(size, device=device))
    same = torch.zeros(3, device=device)
    gathered = [torch.empty_like(same) for _ in range(size)]
    dist.all_gather(gathered, same)
    for item in gathered:
        torch.testing.assert_close(item, same)


def check_reduce_scatter(rank, size, device):
    source = torch.ones(size, 2, device=device)
    out = torch.empty(2, device=device)
    dist.reduce_scatter_tensor(out, source.view(-1))
    assert torch.equal(out, torch.full((2,), float(size), device=device))
    out = torch.empty(2, device=device)
    dist.reduce_scatter(out, list(source.unbind(0)))
    assert torch.equal(out, torch.full((2,), float(size), device=device))


def check_all_to_all(rank, size, device):
    source = torch.arange(size, device=device) + rank * size
    out = torch.empty_like(source)
    dist.all_to_all_single(out, source)
    assert torch.equal(out, torch.arange(size, device=device) * size + rank)


def check_objects(rank, size, device):
    names = [None] * size
    dist.all_gather_object(names, {"rank": rank, "host": os.uname().nodename})
    assert [entry["rank"] for entry in names] == list(range(size))
    payload = [{"seed": 17}] if rank == 0 else [None]
    dist.broadcast_object_list(payload, src=0)
    assert payload[0]["seed"] == 17


def check_broadcast(rank, size, device):
    tensor = torch.full((2,), float(rank), device=device)
    dist.broadcast(tensor, src=0)
    assert torch.equal(tensor, torch.zeros(2, device=device))
    parts = [torch.full((2,), float(i), device=device) for i in range(size)] if rank == 0 else None
    dist.scatter(tensor, parts, src=0)
    assert torch.equal(tensor, torch.full((2,), float(rank), device=device))
    dist.reduce(tensor, dst=0)
    if rank == 0:
        assert tensor[0].item() == size * (size - 1) / 2


def worker(rank, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    device = torch.device("cpu")
    for check in (check_all_reduce, check_all_gather, check_reduce_scatter, check_all_to_all, check_objects, check_broadcast):
        check(rank, size, device)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(4,), nprocs=4)
