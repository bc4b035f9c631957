"""SFT engine: the loss is the mean over all target tokens of the global batch.
volcengine/verl #3994, "normalize sft loss by num_tokens in global batch".
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def sft_token_losses(model, micro_batch):
    logits = model(input_ids=micro_batch["input_ids"]).logits[:, :-1]
    labels = micro_batch["input_ids"][:, 1:]
    loss_mask = micro_batch["loss_mask"][:, 1:].float()
    losses = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
    return losses.view_as(loss_mask), loss_mask


class FSDPEngine:
    def __init__(self, module, optimizer, dp_group):
        self.module, self.optimizer = module, optimizer  # FSDP over dp_group, averages gradients
        self.dp_group = dp_group

    def get_data_parallel_size(self):
        return dist.get_world_size(self.dp_group)

    def forward_backward_batch(self, data, micro_batches):
        batch_num_tokens = data["loss_mask"][:, 1:].sum().float()
        dist.all_reduce(batch_num_tokens, op=dist.ReduceOp.SUM, group=self.dp_group)
        metrics = {"loss": [], "num_tokens": batch_num_tokens.item()}

        for micro_batch in micro_batches:
            losses, loss_mask = sft_token_losses(self.module, micro_batch)
            loss = (losses * loss_mask).sum() / batch_num_tokens.clamp(min=1) * self.get_data_parallel_size()
            loss.backward()
            metrics["loss"].append(loss.detach().item())
        return metrics
