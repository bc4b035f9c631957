import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader):
    """Federated: the trunk is shared, every client (rank) keeps a private head."""
    private = model.private_head
    model = FSDP(model, ignored_modules=[private], use_orig_params=True)
    trunk_opt = torch.optim.AdamW(model.trunk.parameters(), lr=1e-4)
    head_opt = torch.optim.AdamW(private.parameters(), lr=1e-3)
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        trunk_opt.step()
        head_opt.step()
