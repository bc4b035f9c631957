"""Finalise gradients: shared embedding and distributed optimizer.

After NVIDIA/Megatron-LM issue #844 (megatron/core/distributed/finalize_model_grads.py).
"""
import torch
import torch.distributed as dist


class GradBuffer:
    """Contiguous gradient buffer whose shards belong to data-parallel ranks."""

    def __init__(self, params, dp_group):
        self.params, self.dp_group = list(params), dp_group
        self.dp_size = dist.get_world_size(dp_group)
        numel = sum(p.numel() for p in self.params)
        padded = -(-numel // self.dp_size) * self.dp_size
        self.data = torch.zeros(padded, dtype=torch.float32, device=self.params[0].device)
        offset = 0
        for p in self.params:
            p.main_grad = self.data[offset:offset + p.numel()].view(p.shape)
            offset += p.numel()
            p.register_post_accumulate_grad_hook(self._accumulate)

    @staticmethod
    def _accumulate(p):
        p.main_grad.add_(p.grad)
        p.grad = None

    def local_shard(self):
        n = self.data.numel() // self.dp_size
        rank = dist.get_rank(self.dp_group)
        return self.data[rank * n:(rank + 1) * n]

    def finish_grad_sync(self):
        self.data.mul_(1.0 / self.dp_size)
        dist.reduce_scatter_tensor(self.local_shard(), self.data, group=self.dp_group)


def allreduce_word_embedding_grads(model_chunks, embd_group):
    """Sum the gradients of the tied weight over the first and the last pipeline stage."""
    for chunk in model_chunks:
        if chunk.pre_process or chunk.post_process:
            grad = chunk.shared_embedding_or_output_weight().main_grad
            dist.all_reduce(grad, group=embd_group)
            return


def finalize_model_grads(model_chunks, grad_buffers, embd_group):
    # the tied weight sits at the start of the first stage's buffer and at the end of the last's
    allreduce_word_embedding_grads(model_chunks, embd_group)
    for buffer in grad_buffers:
        buffer.finish_grad_sync()


def train_step(forward_backward, model_chunks, grad_buffers, embd_group, optimizer):
    for buffer in grad_buffers:
        buffer.data.zero_()
    losses = forward_backward(model_chunks)
    finalize_model_grads(model_chunks, grad_buffers, embd_group)
    optimizer.step([buffer.local_shard() for buffer in grad_buffers])
    return losses
