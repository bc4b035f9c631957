"""Loss of a sequence that is cut over the sequence-parallel ranks."""
import torch
import torch.nn.functional as F
import torch.distributed as dist
import torch.distributed.nn


class CustomSeq2SeqTrainer:
    def __init__(self, model, sequence_parallel_group):
        self.model = model
        self.sequence_parallel_group = sequence_parallel_group

    def compute_loss(self, inputs):
        # input_ids, labels: this rank's part of the sequence; the number of
        # labels that are not -100 is another one on each rank
        labels = inputs["labels"]
        logits = self.model(input_ids=inputs["input_ids"])
        loss_fct = torch.nn.CrossEntropyLoss(reduction="sum")
        loss = loss_fct(logits.view(-1, logits.size(-1)), labels.view(-1))
        label_num = (labels != -100).sum()
        loss = dist.nn.all_reduce(loss, op=dist.ReduceOp.SUM, group=self.sequence_parallel_group)
        dist.all_reduce(label_num, op=dist.ReduceOp.SUM, group=self.sequence_parallel_group)
        return loss / label_num
