"""Rounds with different token counts: rounds are summed, the whole step is divided once; FSDP1 and a comm of counts in flight."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class TokenStep:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.world = dist.get_world_size()

    def begin(self, batches):
        n = sum((b["labels"] != -100).sum() for b in batches)
        self.count = n.float()
        self.work = dist.all_reduce(self.count, async_op=True)

    def divide(self):
        self.work.wait()
        factor = self.world / self.count
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.mul_(factor)

    def run(self, batches):
        self.begin(batches)
        for i, b in enumerate(batches):
            logits = self.model(b["ids"])
            loss = F.cross_entropy(logits.flatten(0, 1), b["labels"].flatten(), ignore_index=-100, reduction="sum")
            if i < len(batches) - 1:
                with self.model.no_sync():
                    loss.backward()
            else:
                loss.backward()
        self.divide()
        norm = self.model.clip_grad_norm_(1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm


def main(net, loader):
    dist.init_process_group("nccl")
    model = FSDP(net.cuda(), use_orig_params=True)
    step = TokenStep(model, torch.optim.AdamW(model.parameters()))
    for batches in loader:
        print(step.run(batches).item())
