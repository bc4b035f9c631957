"""Gradient reduction of the engine with Ulysses sequence parallelism and ZeRO stage 0."""
import torch
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from deepspeed import comm as dist
from deepspeed.utils import groups


def sequence_parallel_loss(logits, labels, sp_group):
    """This rank's share of the mean loss over the whole sequence (each rank holds a slice of it)."""
    loss_sum = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), reduction="sum", ignore_index=-100)
    num_tokens = (labels != -100).sum()
    dist.all_reduce(num_tokens, group=sp_group)
    return loss_sum / num_tokens


class DeepSpeedEngine(torch.nn.Module):
    def __init__(self, module, optimizer):
        super().__init__()
        self.module, self.optimizer = module, optimizer
        self.sequence_parallel_size = groups._get_sequence_parallel_world_size()

    def allreduce_bucket(self, bucket, dp_group, dp_world_size):
        tensor = _flatten_dense_tensors(bucket)
        tensor.mul_(1. / dp_world_size)
        dist.all_reduce(tensor, group=dp_group)
        return tensor

    def _reduce_non_expert_gradients(self, buckets):
        # all ranks that hold this model replica or a slice of its sequences: sp x dp
        dp_group = groups._get_sequence_data_parallel_group()
        dp_world_size = dist.get_world_size(dp_group) / float(self.sequence_parallel_size)
        for bucket in buckets:
            allreduced = self.allreduce_bucket(bucket, dp_group, dp_world_size)
            for buf, synced in zip(bucket, _unflatten_dense_tensors(allreduced, bucket)):
                buf.copy_(synced)

    def train_batch(self, batch):
        logits = self.module(batch["input_ids"])
        sequence_parallel_loss(logits, batch["labels"], groups._get_sequence_parallel_group()).backward()
        self._reduce_non_expert_gradients([[p.grad for p in self.module.parameters() if p.grad is not None]])
        self.optimizer.step()
