"""Query path of multi-latent attention."""
import itertools

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron.core.transformer.module import MegatronModule


class LatentQuery(MegatronModule):
    def __init__(self, config, q_b_proj: ColumnParallelLinear):
        super().__init__(config=config)
        self.q_a_proj = torch.nn.Linear(config.hidden_size, config.q_lora_rank, bias=False)
        self.q_a_norm = torch.nn.RMSNorm(config.q_lora_rank)
        self.q_b_proj = q_b_proj
        for p in itertools.chain(self.q_a_proj.parameters(), self.q_a_norm.parameters()):
            setattr(p, "sequence_parallel", config.sequence_parallel)

    def forward(self, hidden_states):
        # hidden_states: [s/tp, b, h] with sequence parallelism
        q_compressed = self.q_a_norm(self.q_a_proj(hidden_states))
        q, _ = self.q_b_proj(q_compressed)  # [s, b, heads/tp * dim]
        return q


def allreduce_sequence_parallel_grads(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            torch.distributed.all_reduce(p.main_grad, group=tp_group)
