# Reduces lightly's GatherLayer (NT-Xent with gather_distributed): every rank scores its own queries against the
# keys of all ranks, and backward keeps only the part of the key gradient that was computed on the own rank.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        output = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(output, x)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        return grads[dist.get_rank()].contiguous()  # BUG


class NTXentLoss(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, queries, keys):
        queries = F.normalize(queries, dim=1)
        keys = F.normalize(keys, dim=1)
        all_keys = torch.cat(GatherLayer.apply(keys), dim=0)
        logits = queries @ all_keys.t() / self.temperature
        offset = dist.get_rank() * queries.size(0)
        labels = torch.arange(queries.size(0), device=queries.device) + offset
        return F.cross_entropy(logits, labels)


class SimCLR(nn.Module):
    def __init__(self, backbone, head):
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, x0, x1):
        return self.head(self.backbone(x0)), self.head(self.backbone(x1))


def fit(backbone, head, loader, device):
    model = DistributedDataParallel(SimCLR(backbone, head).to(device), device_ids=[device.index])
    criterion = NTXentLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9)
    for (x0, x1), _ in loader:
        loss = criterion(*model(x0.to(device), x1.to(device)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
