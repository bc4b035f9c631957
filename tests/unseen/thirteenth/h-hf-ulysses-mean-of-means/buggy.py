"""Loss under Ulysses sequence parallelism: every rank has the logits of its part of the sequence.

Source: huggingface/transformers PR #41832 (ALST integration).
"""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class SequenceParallelLoss:
    def __init__(self, device_mesh, model):
        self.sp_group = device_mesh["sp"].get_group()
        self.sp_world_size = dist.get_world_size(self.sp_group)
        self.model = fully_shard(model, mesh=device_mesh["dp", "sp"]._flatten("dp_sp"))

    def shard_loss(self, logits, shift_labels):
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), shift_labels.flatten(), ignore_index=-100, reduction="sum"
        )
        good_tokens = (shift_labels != -100).sum()
        return loss / good_tokens.clamp(min=1), good_tokens

    def compute_loss(self, inputs):
        # prompt tokens are masked, so shards differ in their number of target tokens
        shift_labels = inputs.pop("shift_labels")
        logits = self.model(**inputs).logits
        loss, good_tokens = self.shard_loss(logits, shift_labels)

        losses_per_rank = torch.distributed.nn.functional.all_gather(loss, group=self.sp_group)
        loss = sum(losses_per_rank) / self.sp_world_size  # BUG
        return loss


def train(device_mesh, model, dataloader, optimizer_cls):
    step = SequenceParallelLoss(device_mesh, model)
    optimizer = optimizer_cls(step.model.parameters())
    for inputs in dataloader:
        loss = step.compute_loss(inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
