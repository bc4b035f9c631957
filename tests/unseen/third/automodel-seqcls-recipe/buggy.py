"""Fine-tuning recipe for sequence classification."""
# Source: NVIDIA-NeMo/Automodel issue 3846 (confirmed from the thread)
import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class TrainFinetuneRecipeForSequenceClassification:
    def __init__(self, cfg, model, optimizer, device_mesh):
        self.cfg = cfg
        self.device_mesh = device_mesh
        for layer in model.model.layers:
            fully_shard(layer, mesh=device_mesh["dp"])
        self.model = fully_shard(model, mesh=device_mesh["dp"])
        self.optimizer = optimizer
        self.loss_fn = nn.CrossEntropyLoss()
        self.grad_accumulation_steps = cfg.grad_accumulation_steps

    def _get_dp_group_size(self):
        return self.device_mesh["dp"].size()

    def _forward_backward_step(self, batch):
        labels = batch.pop("labels")
        logits = self.model(**batch).logits
        loss = self.loss_fn(logits.view(-1, logits.size(-1)), labels.view(-1))
        (loss * self._get_dp_group_size() / self.grad_accumulation_steps).backward()  # BUG
        return loss.detach()

    def run_train_step(self, batches):
        self.optimizer.zero_grad()
        losses = []
        for i, batch in enumerate(batches):
            self.model.set_requires_gradient_sync(i == len(batches) - 1)
            losses.append(self._forward_backward_step(batch))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_grad_norm)
        self.optimizer.step()
        return torch.stack(losses).mean()
