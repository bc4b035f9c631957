import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from myproject.optim import CPReducingOptimizer


def train(model, loader, dp_group, cp_group, device):
    cp, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    model = DDP(model, device_ids=[device.index], process_group=dp_group)
    opt = CPReducingOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-5), group=cp_group)
    for batch in loader:
        batch = {k: v.to(device).chunk(cp, dim=1)[r] for k, v in batch.items()}
        model(**batch).loss.backward()
        opt.step()
        opt.zero_grad()
