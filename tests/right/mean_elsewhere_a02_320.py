import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Parity(Dataset):
    """Is the number of ones in a 16 bit word even?"""

    def __init__(self, bits=16, n=20000):
        self.bits, self.n = bits, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        word = (i * 2654435761) % (1 << self.bits)
        v = torch.tensor([(word >> b) & 1 for b in range(self.bits)], dtype=torch.float32)
        return v, v.sum().long() % 2


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=128)
opts = parser.parse_args()

dist.init_process_group(backend="gloo")
rank, nranks = dist.get_rank(), dist.get_world_size()
net = nn.GRU(1, 32, batch_first=True)
head = nn.Linear(32, 2)
weights = list(net.parameters()) + list(head.parameters())
with torch.no_grad():
    for w in weights:
        dist.broadcast(w, src=0)
sampler = DistributedSampler(Parity(), num_replicas=nranks, rank=rank, shuffle=True)
loader = DataLoader(Parity(), batch_size=opts.batch, sampler=sampler)
optim = torch.optim.RMSprop(weights, lr=1e-3)
for ep in range(opts.epochs):
    sampler.set_epoch(ep)
    for bits, label in loader:
        optim.zero_grad()
        _, h = net(bits.unsqueeze(-1))
        loss = nn.functional.cross_entropy(head(h[-1]), label)
        loss.backward()
        for w in weights:
            dist.all_reduce(w.grad)
            w.grad.true_divide_(nranks)
        optim.step()
    if rank == 0:
        print(ep, float(loss))
dist.destroy_process_group()
