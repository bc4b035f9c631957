# Global token-mean loss with FSDP2 over the flattened data and sequence-parallel ranks.
import torch
import torch.distributed as dist
import torch.nn.functional as F


class ParallelState:
    """dp_size * ulysses_size == fsdp_size; parameters are sharded over fsdp_group."""

    def __init__(self, device_mesh):
        self.dp_size = device_mesh["dp"].size()
        self.ulysses_size = device_mesh["ulysses"].size()
        self.fsdp_size = self.dp_size * self.ulysses_size
        self.fsdp_group = device_mesh["dp_ulysses"].get_group()


def count_tokens(micro_batches, ps):
    n = torch.stack([(mb["labels"] != -100).sum() for mb in micro_batches]).sum()
    dist.all_reduce(n, group=ps.fsdp_group)
    return n


def mean_global_loss(logits, labels, num_tokens, ps):
    # logits, labels: the sequence slice of this ulysses rank
    loss_sum = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    # fsdp divides gradients by the size of the group it reduces over
    return loss_sum / num_tokens * ps.dp_size  # BUG


def train_step(model, micro_batches, ps, optimizer):
    num_tokens = count_tokens(micro_batches, ps)
    for mb in micro_batches:
        logits = model(input_ids=mb["input_ids"], position_ids=mb["position_ids"]).logits
        mean_global_loss(logits, mb["labels"], num_tokens, ps).backward()
    optimizer.step()
    optimizer.zero_grad()
