"""Top-k router in front of expert-parallel experts."""
import torch
import torch.nn.functional as F
from megatron.core import parallel_state


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.topk = config.moe_router_topk
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        torch.nn.init.normal_(self.weight, std=config.init_method_std)

    def forward(self, hidden):
        # hidden: [s/tp, b, h], sequence parallel
        logits = F.linear(hidden.flatten(0, 1), self.weight)
        scores, index = torch.topk(logits, self.topk, dim=-1)
        return torch.softmax(scores, dim=-1, dtype=torch.float32), index


def finalize_grads(model):
    group = parallel_state.get_tensor_model_parallel_group()
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            torch.distributed.all_reduce(p.main_grad, group=group)
