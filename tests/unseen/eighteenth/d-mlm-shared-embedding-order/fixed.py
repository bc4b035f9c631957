"""Finish the gradients of a pipelined model with a sharded optimizer.

Source: NVIDIA/Megatron-LM, issue #844. The embedding of the first stage and the output layer of
the last one share their weight. Their gradients lie at different places of the two buffers, so
after the reduce-scatter other data ranks own them: the sum over the two stages then mixes
reduced and unreduced values. The sum over the stages has to come first.
"""
import torch
import torch.distributed as dist


class GradBuffer:
    def __init__(self, params, dp_group):
        self.group = dp_group
        self.world, self.rank = dist.get_world_size(dp_group), dist.get_rank(dp_group)
        numel = sum(p.numel() for p in params)
        numel = -(-numel // self.world) * self.world
        self.data = torch.zeros(numel, dtype=torch.float32, device=params[0].device)
        offset = 0
        for p in params:
            p.main_grad = self.data[offset:offset + p.numel()].view(p.shape)
            offset += p.numel()

    def reduce_scatter(self):
        self.data.div_(self.world)
        n = self.data.numel() // self.world
        shard = self.data[self.rank * n:(self.rank + 1) * n]
        dist.reduce_scatter_tensor(shard, self.data, group=self.group)
        return shard


def allreduce_embedding_grads(shared_weight, embedding_group):
    # embedding_group: the ranks of the first and of the last stage
    if shared_weight is not None:
        dist.all_reduce(shared_weight.main_grad, group=embedding_group)


def finalize_model_grads(buffers, shared_weight, embedding_group):
    """shared_weight: the tied weight on the first and last stage, None between them."""
    allreduce_embedding_grads(shared_weight, embedding_group)
    return [buffer.reduce_scatter() for buffer in buffers]
