import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from myproject.parallel import allreduce_cp_grads


def train(model, loader, dp_group, cp_group, device):
    cp, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    model = DDP(model, device_ids=[device.index], process_group=dp_group)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for ids, labels in loader:
        ids, labels = ids.to(device).chunk(cp, dim=1)[r], labels.to(device).chunk(cp, dim=1)[r]
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        loss.backward()
        allreduce_cp_grads(model.parameters(), cp_group)
        opt.step()
        opt.zero_grad()
