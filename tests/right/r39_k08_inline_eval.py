import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def run(model, loaders, dp_group, cp_group, device):
    cp, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    model = DDP(model, device_ids=[device.index], process_group=dp_group)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for phase in ("train", "val"):
        train = phase == "train"
        for batch in loaders[phase]:
            batch = {k: v.to(device) for k, v in batch.items()}
            if not train:
                batch = {k: v.chunk(cp, dim=1)[r] for k, v in batch.items()}
            with torch.set_grad_enabled(train):
                loss = model(**batch).loss
            if train:
                loss.backward()
                opt.step()
                opt.zero_grad()
