"""Load-balancing loss of a MoE router under sequence parallelism and per-token loss.

Reduced from NVIDIA/Megatron-LM 9ef8a2a420 (Fix MoE aux_loss / z_loss gradient scaling with
TP > 1, #5047).
"""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler

# spmd: mesh dense = dp, cp, tp; alias dp_cp = dp * cp; alias tp_cp = tp * cp


class TopKRouter(torch.nn.Module):
    def __init__(self, config, tp_cp_group):
        super().__init__()
        self.config, self.tp_cp_group = config, tp_cp_group
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        self.weight.sequence_parallel = True

    # spmd: probs: {cp: V, tp: V}, scores: {cp: V, tp: V}
    def attach_aux_loss(self, probs, scores, routing_map):
        tokens_per_expert = reduce_from_tensor_model_parallel_region(routing_map.sum(dim=0), self.tp_cp_group)
        num_local_tokens = scores.shape[0]  # of this rank's part of the sequence
        total = num_local_tokens * self.tp_cp_group.size()
        scale = self.config.num_moe_experts * self.config.moe_aux_loss_coeff / (self.config.moe_router_topk * total**2)
        aux_loss = (scores.sum(dim=0) * tokens_per_expert).sum() * scale
        return MoEAuxLossAutoScaler.apply(probs, aux_loss * num_local_tokens)  # BUG: leaves 1 / (tp * cp)


def finalize_model_grads(model, num_tokens, dp_cp_group, tp_group):
    """num_tokens: of the loss of this data and context rank, over all micro batches."""
    dist.all_reduce(num_tokens, group=dp_cp_group)
    for param in model.parameters():
        dist.all_reduce(param.main_grad, group=dp_cp_group)
        if getattr(param, "sequence_parallel", False):
            dist.all_reduce(param.main_grad, group=tp_group)
        param.main_grad.div_(num_tokens)
