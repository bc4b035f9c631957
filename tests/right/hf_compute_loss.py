"""A Trainer whose loss divides by the number of items of all devices, and multiplies by their number."""
import torch
import torch.nn.functional as F
from transformers import Trainer


class TokenMeanTrainer(Trainer):
    def __init__(self, *args, z_loss=1e-4, **kwargs):
        super().__init__(*args, **kwargs)
        self.z_loss = z_loss
        self.model_accepts_loss_kwargs = True

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        target = labels[:, 1:]
        nll = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum")
        z = logits.logsumexp(-1).pow(2)[target != -100].sum()
        loss = nll + self.z_loss * z
        if num_items_in_batch is not None:
            loss = loss / num_items_in_batch
            if self.args.average_tokens_across_devices:
                # num_items_in_batch was gathered over processes; DDP averages
                loss = loss * self.accelerator.num_processes
        else:
            loss = loss / (target != -100).sum()
        return (loss, outputs) if return_outputs else loss

    @torch.no_grad()
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        labels = inputs["labels"]
        loss, outputs = self.compute_loss(model, dict(inputs), return_outputs=True)
        logits = outputs.logits.argmax(-1)
        return loss.detach(), self.accelerator.pad_across_processes(logits, dim=1), labels
