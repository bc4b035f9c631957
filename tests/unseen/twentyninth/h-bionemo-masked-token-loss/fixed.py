"""Validation loss of a masked language model over data- and context-parallel ranks."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel


@torch.no_grad()
def masked_token_loss(per_token_loss, loss_mask):
    """Mean loss of the masked positions of all ranks; per_token_loss, loss_mask: [b, s / cp]."""
    mask = loss_mask.reshape(-1).float()
    loss_sum = torch.sum(per_token_loss.reshape(-1).float() * mask)
    num_tokens = mask.sum()
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    dist.all_reduce(loss_sum, op=dist.ReduceOp.SUM, group=group)
    dist.all_reduce(num_tokens, op=dist.ReduceOp.SUM, group=group)
    return loss_sum / num_tokens.clamp(min=1)


class ValidationLoss:
    def __init__(self):
        self.values = []

    @torch.no_grad()
    def step(self, model, batch):
        logits = model(batch["text"], batch["attention_mask"])
        labels = batch["labels"].transpose(0, 1).contiguous()
        loss = tensor_parallel.vocab_parallel_cross_entropy(logits.transpose(0, 1).contiguous().float(), labels)
        self.values.append(masked_token_loss(loss.transpose(0, 1), batch["loss_mask"]))

    def compute(self):
        return torch.stack(self.values).mean().item()
