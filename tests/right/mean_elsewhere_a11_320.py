import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MAX_NORM = 1.0


def reduce_and_clip(params, world):
    grads = [p.grad for p in params]
    for g in grads:
        dist.all_reduce(g)
    total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads])) / world
    coef = torch.clamp(MAX_NORM / (total + 1e-6), max=1.0)
    for g in grads:
        g.mul_(coef / world)
    return total


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    world = dist.get_world_size()
    torch.manual_seed(12)
    notes = TensorDataset(torch.randint(0, 128, (2560, 33)))
    emb, rnn, out = nn.Embedding(128, 64).cuda(), nn.GRU(64, 128, batch_first=True).cuda(), nn.Linear(128, 128).cuda()
    params = [p for m in (emb, rnn, out) for p in m.parameters()]
    opt = torch.optim.SGD(params, lr=1.0)
    sampler = DistributedSampler(notes)
    loader = DataLoader(notes, batch_size=32, sampler=sampler)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for (ids,) in loader:
            ids = ids.cuda()
            h, _ = rnn(emb(ids[:, :-1]))
            loss = nn.functional.cross_entropy(out(h).transpose(1, 2), ids[:, 1:])
            opt.zero_grad()
            loss.backward()
            norm = reduce_and_clip(params, world)
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.3f} |g| {norm.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
