"""The loss of the next tokens: [s, b, v] logits, of the whole vocabulary or of this rank's part, and [b, s] labels."""

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy

from .config import TransformerConfig


def compute_language_model_loss(config: TransformerConfig, labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    labels = labels.transpose(0, 1).contiguous()
    if config.gather_output:
        flat = F.cross_entropy(logits.float().view(-1, logits.size(-1)), labels.view(-1), reduction="none")
        losses = flat.view_as(labels)
    else:
        losses = vocab_parallel_cross_entropy(logits.float(), labels)
    return losses.transpose(0, 1).contiguous()


def average_losses_across_data_parallel_group(losses: list[torch.Tensor]) -> torch.Tensor:
    averaged = torch.cat([loss.clone().detach().view(1) for loss in losses])
    torch.distributed.all_reduce(averaged, group=parallel_state.get_data_parallel_group())
    return averaged / parallel_state.get_data_parallel_world_size()


def loss_func(loss_mask: torch.Tensor, losses: torch.Tensor):
    loss_mask = loss_mask.view(-1).float()
    loss = torch.sum(losses.float().view(-1) * loss_mask) / loss_mask.sum()
    return loss, average_losses_across_data_parallel_group([loss])
