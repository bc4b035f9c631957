"""Finalise gradients: distributed optimizer with shared input and output embeddings."""
# Source: NVIDIA/Megatron-LM issue 844 (confirmed from the thread)
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class ShardedGradBuffer:
    """Flat fp32 gradients; after the sync each data-parallel rank steps its own slice."""

    def __init__(self, params, dp_group):
        self.dp_group, self.world = dp_group, dp_group.size()
        numel = sum(p.numel() for p in params)
        self.padded = (numel + self.world - 1) // self.world * self.world
        self.data = torch.zeros(self.padded, dtype=torch.float32, device="cuda")
        offset = 0
        for p in params:
            p.main_grad = self.data[offset:offset + p.numel()].view_as(p)
            offset += p.numel()

    def local_slice(self):
        n = self.padded // self.world
        rank = dist.get_rank(self.dp_group)
        return self.data[rank * n:(rank + 1) * n]

    def reduce_scatter(self):
        self.data.div_(self.world)
        dist.reduce_scatter_tensor(self.local_slice(), self.data, group=self.dp_group)


def allreduce_word_embedding_grads(model):
    """Sum the two copies on the first and on the last pipeline stage."""
    if not parallel_state.is_rank_in_embedding_group():
        return
    weight = model.shared_embedding_or_output_weight()
    dist.all_reduce(weight.main_grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model_chunks):
    for chunk in model_chunks:
        chunk.grad_buffer.reduce_scatter()
    for chunk in model_chunks:
        if chunk.pre_process or chunk.post_process:
            allreduce_word_embedding_grads(chunk)  # BUG


def train_step(model_chunks, optimizer, forward_backward):
    for chunk in model_chunks:
        chunk.grad_buffer.data.zero_()
    forward_backward(model_chunks)
    finalize_model_grads(model_chunks)
    optimizer.step([chunk.grad_buffer.local_slice() for chunk in model_chunks])
