"""DistributedDataParallel: buckets are reduced in order while the backward pass runs.

NVIDIA/apex 6a260f14b22e, apex/parallel/distributed.py
"""
import apex_C
import torch
import torch.distributed as dist
from torch.nn.modules import Module


class DistributedDataParallel(Module):
    def __init__(self, module, param_id_to_bucket, bucket_sizes):
        super().__init__()
        self.module = module
        self.world_size = dist.get_world_size()
        self.param_id_to_bucket = param_id_to_bucket
        self.bucket_sizes = bucket_sizes
        self.reduction_stream = torch.cuda.Stream()
        self.reduction_event = torch.cuda.Event(enable_timing=False, blocking=False)

    def forward(self, *inputs, **kwargs):
        self.buckets = [[None] * size for size in self.bucket_sizes]
        self.buckets_ready_size = [0] * len(self.bucket_sizes)
        self.next_bucket = 0
        self.ready_buckets_not_reduced = set()
        return self.module(*inputs, **kwargs)

    def allreduce_bucket(self, bucket):
        tensor = apex_C.flatten(bucket)
        dist.all_reduce(tensor)
        tensor.mul_(1. / self.world_size)
        for buf, synced in zip(bucket, apex_C.unflatten(tensor, bucket)):
            buf.copy_(synced)

    def comm_ready_buckets(self, param):
        """Called by the gradient hook of `param`."""
        bucket_idx, bucket_loc = self.param_id_to_bucket[id(param)]
        self.buckets[bucket_idx][bucket_loc] = param.grad.data
        self.buckets_ready_size[bucket_idx] += 1

        if self.buckets_ready_size[bucket_idx] == self.bucket_sizes[bucket_idx]:
            if bucket_idx == self.next_bucket:
                torch.cuda.current_stream().record_event(self.reduction_event)
                self.reduction_stream.wait_event(self.reduction_event)
                with torch.cuda.stream(self.reduction_stream):
                    self.allreduce_bucket(self.buckets[bucket_idx])
                    self.next_bucket += 1

                    for i in sorted(self.ready_buckets_not_reduced):
                        # Nothing can be reduced now
                        if i > self.next_bucket:
                            break
                        self.allreduce_bucket(self.buckets[bucket_idx])  # BUG
                        self.ready_buckets_not_reduced.remove(i)
                        self.next_bucket += 1
            else:
                self.ready_buckets_not_reduced.add(bucket_idx)

    def overlapping_backward_epilogue(self):
        torch.cuda.current_stream().wait_stream(self.reduction_stream)
