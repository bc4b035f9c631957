"""Policy loss of one micro batch, FSDP-wrapped actor.

Reduced from alibaba/ROLL 3a7b01f996 (fix: incorrectly handled dim=None, breaking torch autograd
backward pass and causing a hang during token mean).
"""
import torch
from torch.distributed.fsdp import fully_shard


def masked_mean(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.sum() > 0:
        return (tensor * mask).sum() / (mask.sum() + 1e-8)
    return torch.tensor(0.0, device=tensor.device)  # BUG: a rank without valid tokens leaves the graph


def agg_loss(loss_mat, loss_mask, loss_agg_mode):
    if loss_agg_mode == "token-mean":
        return masked_mean(loss_mat, loss_mask)
    raise ValueError(f"Invalid loss_agg_mode: {loss_agg_mode}")


class ActorWorker:
    def __init__(self, model, optimizer, config):
        for layer in model.layers:
            fully_shard(layer)
        self.model = fully_shard(model)
        self.optimizer, self.config = optimizer, config

    def train_step(self, micro_batch):
        log_probs = self.model(micro_batch["input_ids"])
        ratio = (log_probs - micro_batch["old_log_probs"]).exp()
        pg_loss = -ratio * micro_batch["advantages"]
        # whether any response token survived the filters differs from rank to rank
        loss = agg_loss(pg_loss, micro_batch["response_mask"], self.config.loss_agg_mode)
        loss.backward()  # reduce-scatters gradients layer by layer
        self.optimizer.step()
        return loss.detach()
