import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

N = 4


def worker(rank):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("gloo", rank=rank, world_size=N)
    torch.manual_seed(0)
    X = torch.randn(1000, 10)
    Y = X @ torch.arange(10.0).unsqueeze(1) + 0.1 * torch.randn(1000, 1)
    model = torch.nn.Linear(10, 1)
    dataset = TensorDataset(X, Y)
    sampler = DistributedSampler(dataset, num_replicas=N, rank=rank)
    loader = DataLoader(dataset, batch_size=25, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            for param in model.parameters():
                dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
                param.grad.data /= N
            optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), "linear.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, nprocs=N)
