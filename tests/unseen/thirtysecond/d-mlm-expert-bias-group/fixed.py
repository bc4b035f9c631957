"""Auxiliary-loss-free balancing: update of the router's expert bias.
NVIDIA/Megatron-LM, finalize_model_grads.py / moe_utils.py, from memory.
"""
import torch
from megatron.core import parallel_state
from megatron.core.transformer.module import MegatronModule


class TopKRouter(MegatronModule):
    def __init__(self, config):
        super().__init__(config=config)
        self.topk = config.moe_router_topk
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        self.register_buffer("local_tokens_per_expert", torch.zeros(config.num_moe_experts), persistent=False)
        self.register_buffer("expert_bias", torch.zeros(config.num_moe_experts))

    def forward(self, hidden_states):
        # [s/(cp*tp), b, h] with sequence parallelism
        logits = torch.nn.functional.linear(hidden_states.flatten(0, -2), self.weight)
        scores = torch.sigmoid(logits.float())
        _, indices = torch.topk(scores + self.expert_bias, k=self.topk, dim=-1)
        with torch.no_grad():
            self.local_tokens_per_expert += torch.bincount(indices.flatten(), minlength=scores.size(-1))
        return scores.gather(-1, indices), indices


@torch.no_grad()
def get_updated_expert_bias(tokens_per_expert, expert_bias, update_rate):
    group = parallel_state.get_tensor_and_data_parallel_group(with_context_parallel=True)
    torch.distributed.all_reduce(tokens_per_expert, group=group)
    average = tokens_per_expert.sum(dim=-1, keepdim=True) / tokens_per_expert.shape[-1]
    return expert_bias + torch.sign(average - tokens_per_expert) * update_rate


def update_router_expert_bias(model, config):
    routers = [m for chunk in model for m in chunk.modules() if isinstance(m, TopKRouter)]
    if not routers:
        return
    stacked_tokens = torch.stack([r.local_tokens_per_expert for r in routers])
    stacked_bias = torch.stack([r.expert_bias for r in routers])
    updated = get_updated_expert_bias(stacked_tokens, stacked_bias, config.moe_router_bias_update_rate)
    for router, bias in zip(routers, updated):
        router.local_tokens_per_expert.zero_()
        router.expert_bias.copy_(bias)
