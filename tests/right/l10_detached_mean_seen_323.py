import torch
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F


class Trainer:
    def __init__(self, model, sp_group):
        self.model, self.sp_group = model, sp_group

    def local_loss(self, inputs):
        labels = inputs.pop("labels")
        count = (labels != -100).sum()
        logits = self.model(**inputs).logits
        total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        return total, total.detach() / count.clamp(min=1), count

    def compute_loss(self, inputs):
        total, shown, count = self.local_loss(inputs)
        shown = torch.stack(dist_nn.all_gather(shown, group=self.sp_group)).mean()
        totals = torch.stack(dist_nn.all_gather(total, group=self.sp_group)).sum()
        counts = torch.stack(dist_nn.all_gather(count, group=self.sp_group)).sum()
        return totals / counts, shown
