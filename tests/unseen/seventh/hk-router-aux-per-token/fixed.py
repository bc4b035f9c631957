"""Load-balancing loss of a MoE router and the scaling of the gradients (data parallel only)."""
import torch
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))

    def _attach_aux_loss(self, probs, scores, routing_map):
        # mean-type loss over the tokens of this rank
        load = routing_map.float().mean(0)
        importance = scores.mean(0)
        aux = (load * importance).sum() * self.config.num_moe_experts * self.config.moe_aux_loss_coeff
        if self.config.calculate_per_token_loss:
            aux = aux * probs.size(0)
        return MoEAuxLossAutoScaler.apply(probs, aux)

    def forward(self, x):
        x = x.view(-1, self.config.hidden_size)
        scores = torch.softmax(torch.nn.functional.linear(x, self.weight).float(), dim=-1)
        top = torch.topk(scores, self.config.moe_router_topk, dim=-1).indices
        routing_map = torch.zeros_like(scores, dtype=torch.bool).scatter(1, top, True)
        probs = scores * routing_map
        return self._attach_aux_loss(probs, scores, routing_map), routing_map


def loss_for_backward(token_losses, config, num_microbatches):
    if config.calculate_per_token_loss:
        MoEAuxLossAutoScaler.set_loss_scale(torch.ones((), device=token_losses.device))
        return token_losses.sum()
    MoEAuxLossAutoScaler.set_loss_scale(torch.full((), 1.0 / num_microbatches, device=token_losses.device))
    return token_losses.mean() / num_microbatches


def finalize(model, config, dp_group, total_num_tokens):
    for p in model.parameters():
        torch.distributed.all_reduce(p.main_grad, group=dp_group)
        p.main_grad.div_(total_num_tokens if config.calculate_per_token_loss else dp_group.size())
