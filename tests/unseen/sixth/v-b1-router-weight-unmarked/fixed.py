"""Top-k router under sequence parallelism."""
import torch
from megatron.core.transformer.module import MegatronModule


class TopKRouter(MegatronModule):
    def __init__(self, config):
        super().__init__(config=config)
        self.topk = config.moe_router_topk
        self.weight = torch.nn.Parameter(torch.empty((config.num_moe_experts, config.hidden_size)))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, input):
        # [s/tp, b, h] with sequence parallelism
        logits = torch.nn.functional.linear(input, self.weight)
        return torch.topk(torch.softmax(logits, dim=-1), k=self.topk, dim=-1)
