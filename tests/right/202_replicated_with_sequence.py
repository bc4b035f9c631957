"""Replicated projections before column-parallel ones: their gradients are summed where the sequence is split, or where it always is."""
import torch
from megatron.core.tensor_parallel import ColumnParallelLinear


class Query(torch.nn.Module):
    def __init__(self, hidden_size, q_rank, q_b: ColumnParallelLinear):
        super().__init__()
        self.q_a = torch.nn.Linear(hidden_size, q_rank, bias=False)  # replicated over TP
        self.q_b = q_b

    def forward(self, x):
        # x: a sequence shard with sequence parallelism, else the same on every TP rank
        return self.q_b(self.q_a(x))[0]


class Manager:
    def __init__(self, model, config, tp_group):
        self.model, self.config, self.tp_group = model, config, tp_group

    def reduce_replicated_grads(self):
        if not self.config.sequence_parallel:
            return
        for name, p in self.model.named_parameters():
            if "q_a" in name:
                torch.distributed.all_reduce(p.grad, group=self.tp_group)
