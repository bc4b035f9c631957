import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from myproject.cp import ContextParallelModel


def train(model, loader, dp_group, cp_group, device):
    """ContextParallelModel hooks its parameters so that gradients are averaged over cp_group."""
    cp, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    model = ContextParallelModel(model, cp_group)
    model = DDP(model, device_ids=[device.index], process_group=dp_group)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for batch in loader:
        batch = {k: v.to(device).chunk(cp, dim=1)[r] for k, v in batch.items()}
        model(**batch).loss.backward()
        opt.step()
        opt.zero_grad()
