"""Switch MLP with a top-1 router under sequence parallelism."""
import torch
from megatron.core import parallel_state
from megatron.core.transformer.module import MegatronModule


class SwitchMLP(MegatronModule):
    def __init__(self, config, experts):
        super().__init__(config=config)
        self.router = torch.nn.Linear(config.hidden_size, config.num_moe_experts)  # BUG: not marked
        self.local_experts = torch.nn.ModuleList(experts)

    def forward(self, hidden_states):
        # [s/tp, b, h]: this rank's part of the sequence
        route = torch.softmax(self.router(hidden_states), dim=-1)
        max_prob, max_ind = torch.max(route, dim=-1)
        out = torch.zeros_like(hidden_states)
        for i, expert in enumerate(self.local_experts):
            sel = (max_ind == i).unsqueeze(-1)
            out = out + expert(hidden_states) * sel
        return out * max_prob.unsqueeze(-1)


def allreduce_layernorm_grads(model):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            torch.distributed.all_reduce(p.main_grad, group=parallel_state.get_tensor_model_parallel_group())
