"""Buckets of gradients: the shared embedding has one of its own, so the first and the last stage cut it alike."""
import torch.distributed as dist
from megatron.core import parallel_state


class Buckets:
    def __init__(self, params, dp_group):
        self.dp_group, self.buckets, bucket = dp_group, [], []
        for param in params:
            if getattr(param, "shared_embedding", False):
                self.buckets.append([param])
                continue
            bucket.append(param)
        self.buckets.append(bucket)
        self.grad_data = None

    def finish_grad_sync(self):
        shard = self.grad_data.chunk(self.dp_group.size())[self.dp_group.rank()]
        dist.reduce_scatter_tensor(shard, self.grad_data, group=self.dp_group)


def allreduce_embedding_grads(model):
    if parallel_state.is_rank_in_embedding_group():
        dist.all_reduce(model.shared_weight().main_grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model, buckets):
    buckets.finish_grad_sync()
    allreduce_embedding_grads(model)
