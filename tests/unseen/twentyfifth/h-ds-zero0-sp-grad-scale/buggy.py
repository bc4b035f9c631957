# DeepSpeed 6b6d64185 (PR #5555): ZeRO-0 averages gradients over the sequence-data-parallel group by its
# full size; sequence-parallel ranks hold partial sums of one sample, so gradients come out sp times too small.
import torch
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from deepspeed import comm as dist
from deepspeed.utils import groups


class DeepSpeedEngine(torch.nn.Module):
    def __init__(self, module, sequence_parallel_size):
        super().__init__()
        self.module = module
        self.sequence_parallel_size = sequence_parallel_size

    def forward(self, input_ids, labels):
        # input_ids, labels: the slice of the sequence owned by this sequence-parallel rank
        logits = self.module(input_ids)
        loss_sum = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        num_tokens = (labels != -100).sum()
        dist.all_reduce(num_tokens, group=groups._get_sequence_parallel_group())
        return loss_sum / num_tokens

    def backward(self, loss):
        loss.backward()
        self.allreduce_gradients()

    def allreduce_gradients(self):
        grads = [p.grad for p in self.module.parameters() if p.grad is not None]
        self._reduce_non_expert_gradients(grads)

    def _reduce_non_expert_gradients(self, grads):
        self.allreduce_no_retain(grads, dp_group=groups._get_sequence_data_parallel_group())

    def allreduce_no_retain(self, bucket, dp_group):
        allreduced = self.allreduce_bucket(bucket, dp_group)
        for buf, synced in zip(bucket, _unflatten_dense_tensors(allreduced, bucket)):
            buf.copy_(synced)

    def allreduce_bucket(self, bucket, dp_group):
        tensor = _flatten_dense_tensors(bucket)
        tensor.mul_(1. / dist.get_world_size(group=dp_group))  # BUG
        dist.all_reduce(tensor, group=dp_group)
        return tensor
