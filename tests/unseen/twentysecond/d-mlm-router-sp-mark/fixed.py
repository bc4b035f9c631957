"""Switch MLP whose router reads sequence shards (NVIDIA/Megatron-LM#619)."""
import torch
from megatron.core import tensor_parallel
from megatron.core.transformer.module import MegatronModule


class SwitchMLP(MegatronModule):
    def __init__(self, config, experts):
        super().__init__(config=config)
        self.router = torch.nn.Linear(config.hidden_size, config.num_moe_experts)
        for param in self.router.parameters():
            setattr(param, "sequence_parallel", config.sequence_parallel)
        self.local_experts = torch.nn.ModuleList(experts)

    def forward(self, hidden_states):
        # [s/tp, b, h] with sequence parallelism
        route = torch.softmax(self.router(hidden_states), dim=-1)
        max_prob, max_ind = torch.max(route, dim=-1)
        x = tensor_parallel.gather_from_sequence_parallel_region_to_moe(hidden_states)
        ind = tensor_parallel.gather_from_sequence_parallel_region_to_moe(max_ind)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.local_experts):
            sel = ind == i
            out[sel] = expert(x[sel])
        out = tensor_parallel.reduce_scatter_to_sequence_parallel_region_from_moe(out)
        return out * max_prob.unsqueeze(-1)
