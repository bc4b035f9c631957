"""Load-balancing loss over the global batch. microsoft/ltp-megatron-lm, pull request #68."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional


def global_batch_load_balancing_loss(probs, routing_map, moe_aux_loss_coeff, dp_group):
    """probs: [tokens, experts] of this rank, routing_map: bool, same shape."""
    num_experts = probs.shape[-1]
    routing_count = routing_map.sum(dim=0).float()
    # how often each expert was chosen in the global batch
    dist.nn.functional.all_reduce(routing_count, group=dp_group)  # BUG: out of place, result dropped
    fraction = routing_count / routing_count.sum()
    mean_prob = probs.mean(dim=0)
    return moe_aux_loss_coeff * num_experts * torch.sum(fraction * mean_prob)


class TopKRouter(torch.nn.Module):
    def __init__(self, hidden_size, num_experts, topk, coeff, dp_group):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(num_experts, hidden_size))
        torch.nn.init.normal_(self.weight, std=0.02)
        self.topk, self.coeff, self.dp_group = topk, coeff, dp_group

    def forward(self, hidden_states):
        logits = torch.nn.functional.linear(hidden_states.float(), self.weight.float())
        probs = torch.softmax(logits, dim=-1)
        top, index = torch.topk(probs, self.topk, dim=-1)
        routing_map = torch.zeros_like(probs, dtype=torch.bool).scatter(1, index, True)
        aux = global_batch_load_balancing_loss(probs, routing_map, self.coeff, self.dp_group)
        return top / top.sum(dim=-1, keepdim=True), routing_map, aux


def training_loss(lm_loss, aux_losses):
    # gradients of both terms are averaged over dp_group by the DDP wrapper
    return lm_loss + torch.stack(aux_losses).sum()
