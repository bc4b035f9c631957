"""Token accuracy in evaluation."""
import torch
import torch.distributed as dist
from internlm.core.context import ParallelMode
from internlm.core.context import global_context as gpc


class Accuracy:
    def __init__(self, device):
        self.right = torch.zeros(1, device=device)
        self.total = torch.zeros(1, device=device)

    def update(self, logits, labels):
        # logits: whole vocabulary; in isp mode a tensor rank holds its part of the sequence
        preds = logits.argmax(dim=-1)
        self.right += (preds == labels).sum()
        self.total += (labels != -100).sum()

    def get_metric(self):
        for count in (self.right, self.total):
            dist.all_reduce(count, group=gpc.get_group(ParallelMode.DATA))
            if gpc.config.parallel.tensor["mode"] == "isp":
                dist.all_reduce(count, group=gpc.get_group(ParallelMode.TENSOR))
        return (self.right / self.total).item()
