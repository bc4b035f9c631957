"""Multi-latent attention: replicated A projection, column-parallel B projection."""
import torch
from megatron.core.tensor_parallel import ColumnParallelLinear


class MLAQueryProjection(torch.nn.Module):
    def __init__(self, hidden_size, q_rank, q_b: ColumnParallelLinear):
        super().__init__()
        self.q_a = torch.nn.Linear(hidden_size, q_rank, bias=False)  # replicated over TP
        self.q_a_norm = torch.nn.RMSNorm(q_rank)
        self.q_b = q_b  # heads sharded over TP, reduces the gradient of its input

    def forward(self, x):
        # x: a sequence shard with sequence parallelism, else the same on every TP rank
        return self.q_b(self.q_a_norm(self.q_a(x)))[0]


class TrainingManager:
    def __init__(self, model, config, tp_group):
        self.model, self.config, self.tp_group = model, config, tp_group

    def reduce_replicated_grads(self):
        for name, p in self.model.named_parameters():
            if "q_a" in name:  # BUG: without SP q_b has already summed them
                torch.distributed.all_reduce(p.grad, group=self.tp_group)
