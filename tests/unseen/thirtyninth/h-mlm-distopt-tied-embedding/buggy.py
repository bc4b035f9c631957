"""Finish the gradients of one pipeline stage with a distributed (ZeRO-1) optimizer."""
import torch
import torch.distributed as dist


class GradBuffer:
    """Contiguous gradient buffer, padded to a multiple of the data-parallel size."""

    def __init__(self, params, dp_group, device):
        self.dp_group = dp_group
        world = dist.get_world_size(dp_group)
        numel = sum(p.numel() for p in params)
        padded = (numel + world - 1) // world * world
        self.data = torch.zeros(padded, device=device)
        offset = 0
        for p in params:
            p.main_grad = self.data[offset : offset + p.numel()].view_as(p)
            offset += p.numel()

    def local_shard(self):
        world, rank = dist.get_world_size(self.dp_group), dist.get_rank(self.dp_group)
        return self.data.view(world, -1)[rank]

    def reduce_scatter(self):
        self.data /= dist.get_world_size(self.dp_group)
        dist.reduce_scatter_tensor(self.local_shard(), self.data, group=self.dp_group)


class Stage:
    def __init__(self, module, params, pgs, device, tie_embeddings):
        self.module, self.pgs, self.tie_embeddings = module, pgs, tie_embeddings
        self.buffer = GradBuffer(params, pgs.dp, device)
        self.is_first = dist.get_rank(pgs.pp) == 0
        self.is_last = dist.get_rank(pgs.pp) == dist.get_world_size(pgs.pp) - 1

    def shared_weight(self):
        return self.module.word_embeddings.weight if self.is_first else self.module.lm_head.weight


def allreduce_embedding_grads(stage):
    if stage.tie_embeddings and stage.is_first != stage.is_last:
        # pgs.embd: the first and the last stage
        dist.all_reduce(stage.shared_weight().main_grad, group=stage.pgs.embd)


def finalize_model_grads(stage):
    stage.buffer.reduce_scatter()
    allreduce_embedding_grads(stage)  # BUG


def train_step(stage, schedule, optimizer, batch):
    stage.buffer.data.zero_()
    loss = schedule(stage, batch)
    finalize_model_grads(stage)
    optimizer.step(stage.buffer.local_shard())
    return loss
