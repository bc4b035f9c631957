"""SimCLR: gather with a backward that sums, the whole loss on every rank, DDP."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        output = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(output, x)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients)
        return all_gradients[dist.get_rank()]


class NTXent(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, za, zb):
        za = torch.cat(GatherLayer.apply(za.contiguous()), dim=0)
        zb = torch.cat(GatherLayer.apply(zb.contiguous()), dim=0)
        n = za.shape[0]
        z = F.normalize(torch.cat([za, zb]), dim=1)
        sim = z @ z.t() / self.temperature
        sim.fill_diagonal_(float("-inf"))
        target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
        return F.cross_entropy(sim, target)


def main(net, loader):
    dist.init_process_group("nccl")
    model = nn.SyncBatchNorm.convert_sync_batchnorm(net).cuda()
    model = nn.parallel.DistributedDataParallel(model)
    criterion = NTXent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for a, b in loader:
        loss = criterion(model(a.cuda()), model(b.cuda()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
