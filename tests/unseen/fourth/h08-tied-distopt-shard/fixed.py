"""Distributed optimizer: the gradient of tied embeddings, summed in what remains of it after the scatter."""
import torch
import torch.distributed as dist


class DistributedOptimizer:
    def __init__(self, optimizer, model, ctx):
        self.optimizer, self.model, self.ctx = optimizer, model, ctx
        self.dp_group = ctx.dp_group
        self.dp_size = dist.get_world_size(self.dp_group)
        self.dp_rank = dist.get_rank(self.dp_group)
        self.params = [p for p in model.parameters() if p.requires_grad]

    def _shard_bounds(self, p):
        n = p.numel() // self.dp_size
        return self.dp_rank * n, (self.dp_rank + 1) * n

    def reduce_scatter_gradients(self):
        for p in self.params:
            out = p.grad.new_empty(p.numel() // self.dp_size)
            dist.reduce_scatter_tensor(out, p.grad.view(-1), op=dist.ReduceOp.AVG, group=self.dp_group)
            p.grad_shard = out

    def allreduce_word_embedding_grads(self):
        if self.ctx.embedding_group is None:
            return
        weight = self.model.shared_embedding_weight()
        dist.all_reduce(weight.grad, group=self.ctx.embedding_group)

    def step(self):
        self.allreduce_word_embedding_grads()
        self.reduce_scatter_gradients()
        for p in self.params:
            self.optimizer.step_shard(p, p.grad_shard)
        for p in self.params:
            start, end = self._shard_bounds(p)
            shard = p.data.view(-1)[start:end].clone()
            dist.all_gather_into_tensor(p.data.view(-1), shard, group=self.dp_group)
            p.grad = None
