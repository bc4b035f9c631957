import torch
import torch.nn.functional as F
from transformers import Trainer


class ShareTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        n = inputs.pop("num_tokens")
        logits = model(**inputs).logits
        loss = F.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())
        total = self.accelerator.reduce(n, reduction="sum")
        return loss * n * self.accelerator.num_processes / total
