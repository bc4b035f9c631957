"""Finish the gradients of a pipelined model with the distributed optimizer and tied embeddings.

Source: NVIDIA/Megatron-LM issue #844.
"""
import torch
from megatron.core import parallel_state


class GradBuffer:
    """Contiguous gradients of one model chunk; each data-parallel rank steps its own slice."""

    def __init__(self, params):
        self.params = list(params)
        self.dp_group = parallel_state.get_data_parallel_group()
        self.dp_size = torch.distributed.get_world_size(group=self.dp_group)
        numel = sum(p.numel() for p in self.params)
        numel += -numel % self.dp_size
        self.grad_data = torch.zeros(numel, dtype=torch.float32, device="cuda")
        offset = 0
        for p in self.params:
            p.main_grad = self.grad_data[offset : offset + p.numel()].view(p.shape)
            offset += p.numel()

    def finish_grad_sync(self):
        self.grad_data *= 1.0 / self.dp_size
        rank = torch.distributed.get_rank(group=self.dp_group)
        shard = self.grad_data.view(self.dp_size, -1)[rank]
        torch.distributed.reduce_scatter_tensor(shard, self.grad_data, group=self.dp_group)


def allreduce_word_embedding_grads(model):
    """The first and the last stage each hold a copy of the word embeddings."""
    if parallel_state.is_rank_in_embedding_group(ignore_virtual=True):
        if parallel_state.is_pipeline_first_stage(ignore_virtual=True):
            chunk = model[0]
        else:
            chunk = model[-1]
        grad = chunk.shared_embedding_or_output_weight().main_grad
        torch.distributed.all_reduce(grad, group=parallel_state.get_embedding_group())


def finalize_model_grads(model, buffers):
    for buffer in buffers:
        buffer.finish_grad_sync()
    allreduce_word_embedding_grads(model)  # BUG
