import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

INF = float("inf")


def gather_norms(norm):
    out = [torch.zeros_like(norm) for _ in range(dist.get_world_size())]
    dist.all_gather(out, norm)
    return torch.stack(out)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(44)
    ds = TensorDataset(torch.randint(0, 256, (4096, 33)))
    emb = nn.Embedding(256, 64)
    blk = nn.LSTM(64, 64, batch_first=True)
    out = nn.Linear(64, 256)
    model = nn.ModuleList([emb, blk, out]).cuda()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    sampler = DistributedSampler(ds)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (ids,) in DataLoader(ds, batch_size=64, sampler=sampler):
            ids = ids.cuda()
            logits = out(blk(emb(ids[:, :-1]))[0])
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
            opt.zero_grad()
            loss.backward()
            norms = gather_norms(nn.utils.clip_grad_norm_(model.parameters(), max_norm=INF))
            for p in model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            opt.step()
            if step % 10 == 0 and dist.get_rank() == 0:
                print(step, "norm min/max over ranks", norms.min().item(), norms.max().item())
            step += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
