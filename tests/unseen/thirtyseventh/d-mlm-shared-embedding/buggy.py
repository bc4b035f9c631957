# thread: https://github.com/NVIDIA/Megatron-LM/issues/844
"""Gradient finalisation with a sharded optimizer and pipeline stages."""
import torch
import torch.distributed as dist


class FlatGradBuffer:
    """One contiguous fp32 buffer; every data rank updates its own slice."""

    def __init__(self, params, dp_group):
        self.params, self.dp_group = params, dp_group
        self.dp_size, self.dp_rank = dist.get_world_size(dp_group), dist.get_rank(dp_group)
        total = sum(p.numel() for p in params)
        padded = (total + self.dp_size - 1) // self.dp_size * self.dp_size
        self.shard = padded // self.dp_size
        self.grads = torch.zeros(padded, device=params[0].device)
        self.weights = torch.zeros(padded, device=params[0].device)
        offset = 0
        for p in params:
            end = offset + p.numel()
            p.main_grad = self.grads[offset:end].view_as(p)
            self.weights[offset:end].copy_(p.detach().flatten())
            p.data = self.weights[offset:end].view_as(p)
            offset = end

    def own(self, flat):
        return flat[self.dp_rank * self.shard : (self.dp_rank + 1) * self.shard]

    def start_iteration(self):
        self.grads.zero_()
        for p in self.params:
            p.grad = None

    def accumulate(self):
        for p in self.params:
            if p.grad is not None:
                p.main_grad.add_(p.grad)
                p.grad = None

    def reduce_scatter(self):
        out = torch.empty_like(self.own(self.grads))
        dist.reduce_scatter_tensor(out, self.grads, op=dist.ReduceOp.AVG, group=self.dp_group)
        self.own(self.grads).copy_(out)

    def gather_weights(self):
        dist.all_gather_into_tensor(
            self.weights, self.own(self.weights).clone(), group=self.dp_group
        )


class ShardedAdam:
    def __init__(self, buffer, lr):
        self.buffer = buffer
        self.master = torch.nn.Parameter(buffer.own(buffer.weights).clone())
        self.inner = torch.optim.Adam([self.master], lr=lr)

    def step(self):
        self.master.grad = self.buffer.own(self.buffer.grads)
        self.inner.step()
        self.buffer.own(self.buffer.weights).copy_(self.master.detach())
        self.buffer.gather_weights()


def allreduce_embedding_grads(stage, embedding_group):
    """The input embedding and the output head are one matrix kept on two stages."""
    if stage.is_first or stage.is_last:
        weight = stage.embedding_weight if stage.is_first else stage.head_weight
        dist.all_reduce(weight.main_grad, group=embedding_group)


def finalize_model_grads(stage, buffer, groups):
    buffer.reduce_scatter()
    if groups.pp_size > 1:
        allreduce_embedding_grads(stage, groups.embedding)  # BUG


def train_step(stage, schedule, buffer, optimizer, groups, num_microbatches):
    """Both copies of the matrix start equal; schedule yields after each backward."""
    buffer.start_iteration()
    for _ in schedule.run(stage, num_microbatches):
        buffer.accumulate()
    buffer.grads.div_(num_microbatches)
    finalize_model_grads(stage, buffer, groups)
    optimizer.step()
