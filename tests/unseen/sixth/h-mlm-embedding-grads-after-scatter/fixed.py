"""Finish the gradients with a sharded optimizer and tied embeddings."""
import torch
import torch.distributed as dist


class GradBuffer:
    def __init__(self, data, dp_group):
        self.data, self.dp_group = data, dp_group
        n, r = dist.get_world_size(dp_group), dist.get_rank(dp_group)
        self.local = data.chunk(n)[r]

    def reduce_scatter(self):
        self.data /= dist.get_world_size(self.dp_group)
        dist.reduce_scatter_tensor(self.local, self.data, group=self.dp_group)


def allreduce_embedding_grads(word_embeddings, embd_group):
    # first and last stage hold a copy of the weight; its main_grad is a view of
    # the buffer, at another offset on each stage
    dist.all_reduce(word_embeddings.main_grad, group=embd_group)


def finalize_model_grads(buffers, word_embeddings, embd_group):
    allreduce_embedding_grads(word_embeddings, embd_group)
    for buffer in buffers:
        buffer.reduce_scatter()
