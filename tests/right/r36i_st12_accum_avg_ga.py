# RIGHT: HF-like: the items of the window over all ranks; the micro losses are not divided by the number of steps as the count covers the window.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, accum):
        self.model, self.accum = model, accum

    def setup(self, device):
        self.model = FSDP(self.model, device_id=device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def items(self, window):
        n = torch.stack([(b["labels"] != -100).sum() for b in window]).sum().cuda()
        counts = [torch.zeros_like(n) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, n)
        return torch.stack(counts).sum()

    def compute_loss(self, batch, num_items):
        labels = batch["labels"]
        logits = self.model(batch["ids"])
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum") / num_items
        return loss * dist.get_world_size()

    def update(self, window):
        num_items = self.items(window)
        for b in window:
            self.compute_loss(b, num_items).backward()
        self.model.clip_grad_norm_(1.0)
        self.opt.step()
        self.opt.zero_grad()
