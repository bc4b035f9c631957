"""Causal-LM training with DeepSpeed sequence parallelism."""
# Source: huggingface/transformers pull request 31525 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn.functional as F
from deepspeed.utils import groups


def shift_right_pad(labels, ignore_index=-100):
    """Target of each position is the next token."""
    return F.pad(labels[:, 1:], (0, 1), value=ignore_index)


class SequenceParallelCollator:
    """Splits a batch of whole sequences over the sequence-parallel ranks."""

    def __init__(self, tokenizer, ignore_index=-100):
        self.tokenizer, self.ignore_index = tokenizer, ignore_index

    def __call__(self, examples):
        batch = self.tokenizer.pad(examples, return_tensors="pt")
        group = groups._get_sequence_parallel_group()
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        length = batch["input_ids"].size(1)
        batch["position_ids"] = torch.arange(length).expand_as(batch["input_ids"])
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, self.ignore_index)
        batch["labels"] = shift_right_pad(batch["labels"], self.ignore_index)
        names = ("input_ids", "position_ids", "labels")
        return {name: batch[name].chunk(world, dim=1)[rank] for name in names}


def compute_loss(model, inputs, ignore_index=-100):
    logits = model(input_ids=inputs["input_ids"], position_ids=inputs["position_ids"]).logits
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), inputs["labels"].flatten(),
        ignore_index=ignore_index, reduction="sum",
    )
    group = groups._get_sequence_data_parallel_group()
    num_tokens = (inputs["labels"] != ignore_index).sum()
    dist.all_reduce(num_tokens, group=group)
    # gradients are averaged over the same group
    return loss / num_tokens * dist.get_world_size(group)
