"""Sequence classification fine-tuning step with FSDP2."""
import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class SequenceClassificationRecipe:
    def __init__(self, model, optimizer, dp_mesh):
        for layer in model.layers:
            fully_shard(layer, mesh=dp_mesh)
        self.model = fully_shard(model, mesh=dp_mesh)  # averages gradients over dp
        self.optimizer, self.dp_mesh = optimizer, dp_mesh
        self.loss_fn = nn.CrossEntropyLoss()  # mean over this rank's samples

    def train_step(self, batch):
        labels = batch.pop("labels")
        logits = self.model(**batch)
        loss = self.loss_fn(logits, labels)
        (loss * self.dp_mesh.size()).backward()  # BUG: undoes an average that nothing else replaces
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
