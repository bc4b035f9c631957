"""Load-balancing loss when the tokens of a sequence are spread over ranks."""
import torch
import torch.distributed as dist


def switch_load_balancing_loss_func(
    probs, tokens_per_expert, topk, moe_aux_loss_coeff, sequence_partition_group=None
):
    # probs: [tokens of this rank, experts]; the sum of the values of all ranks is the loss
    num_sub_sequence = 1
    if sequence_partition_group is not None:
        num_sub_sequence = dist.get_world_size(sequence_partition_group)
        dist.all_reduce(tokens_per_expert, group=sequence_partition_group)

    num_tokens = probs.shape[0] * num_sub_sequence
    num_experts = probs.shape[1]
    aggregated_probs_per_expert = probs.sum(dim=0)
    return torch.sum(aggregated_probs_per_expert * tokens_per_expert) * (
        num_experts * moe_aux_loss_coeff / (num_tokens * num_tokens * topk)
    )


class TopKRouter(torch.nn.Module):
    def __init__(self, weight, topk, coeff, tp_cp_group, sequence_parallel):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        setattr(self.weight, "sequence_parallel", sequence_parallel)
        self.topk, self.coeff, self.tp_cp_group = topk, coeff, tp_cp_group

    def forward(self, x):
        probs = torch.softmax(torch.nn.functional.linear(x, self.weight), dim=-1)
        scores, indices = torch.topk(probs, self.topk, dim=-1)
        counts = torch.bincount(indices.flatten(), minlength=probs.size(-1))
        aux = switch_load_balancing_loss_func(probs, counts, self.topk, self.coeff, self.tp_cp_group)
        return scores, indices, aux
