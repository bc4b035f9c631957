import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def validate(model, loader, cp_group, device):
    cp, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    total = torch.zeros(2, device=device)
    for batch in loader:
        batch = {k: v.to(device).chunk(cp, dim=1)[r] for k, v in batch.items()}
        n = (batch["labels"] != -100).sum()
        total += torch.stack([model(**batch).loss * n, n])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def train(model, loader, vloader, dp_group, cp_group, device):
    """Training batches are replicated over cp (memory is enough for short ones)."""
    model = DDP(model, device_ids=[device.index], process_group=dp_group)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step, batch in enumerate(loader):
        batch = {k: v.to(device) for k, v in batch.items()}
        model(**batch).loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 500 == 0:
            validate(model.module, vloader, cp_group, device)
