"""Sequence-parallel fine-tuning with a selectable loss function."""
# Source: modelscope/ms-swift pull request 10185 (confirmed from the thread; code from memory)
import torch
import torch.distributed as dist
import torch.nn.functional as F


class SequenceParallel:
    def __init__(self, sp_group, dp_sp_group):
        self.sp_group, self.dp_sp_group = sp_group, dp_sp_group
        self.rank, self.world_size = dist.get_rank(sp_group), dist.get_world_size(sp_group)

    def split(self, tensor):
        return tensor.chunk(self.world_size, dim=1)[self.rank].contiguous()

    def prepare_inputs(self, inputs):
        """Targets are aligned with their positions before the split."""
        labels = F.pad(inputs["labels"][:, 1:], (0, 1), value=-100)
        position_ids = torch.arange(inputs["input_ids"].size(1), device=labels.device)
        position_ids = position_ids.expand_as(inputs["input_ids"])
        return {
            "input_ids": self.split(inputs["input_ids"]),
            "position_ids": self.split(position_ids),
            "labels": self.split(labels),
        }


def per_token_loss(logits, labels):
    loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
    return loss.view_as(labels)


class CrossEntropyLoss:
    """loss_type='cross_entropy'"""

    def __init__(self, sequence_parallel=None):
        self.sequence_parallel = sequence_parallel

    def __call__(self, logits, labels):
        if self.sequence_parallel is None:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return per_token_loss(logits, labels).sum(), (labels != -100).sum()


class Seq2SeqTrainer:
    def __init__(self, model, optimizer, sequence_parallel):
        self.model, self.optimizer, self.sp = model, optimizer, sequence_parallel
        self.loss_func = CrossEntropyLoss(sequence_parallel)

    def compute_loss(self, inputs):
        labels = inputs.pop("labels")
        logits = self.model(**inputs).logits
        loss_sum, num_tokens = self.loss_func(logits, labels)
        dist.all_reduce(num_tokens, group=self.sp.dp_sp_group)
        # the gradient reduction averages over dp_sp_group
        return loss_sum / num_tokens * dist.get_world_size(self.sp.dp_sp_group)

    def training_step(self, inputs):
        loss = self.compute_loss(self.sp.prepare_inputs(inputs))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
