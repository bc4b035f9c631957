import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

from torch.distributed.nn import all_gather


def train(model, loader):
    scale = model.logit_scale
    model = FSDP(model, ignored_states=[scale])
    main_opt = torch.optim.AdamW([p for p in model.parameters() if p is not scale], lr=1e-4)
    scale_opt = torch.optim.SGD([scale], lr=1e-4)
    for image, text in loader:
        a, b = model(image, text)
        a, b = torch.cat(all_gather(a)), torch.cat(all_gather(b))
        logits = scale.exp() * a @ b.t()
        # every rank has the whole batch here: the gradient of the scale is the same everywhere
        labels = torch.arange(len(a), device=a.device)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        loss.backward()
        main_opt.step()
        scale_opt.step()
