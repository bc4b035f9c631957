# thread: https://github.com/NVIDIA-NeMo/Automodel/pull/2468
"""Training loop of a block-diffusion draft model for speculative decoding."""
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class DFlashConfig:
    hidden_size: int = 2048
    vocab_size: int = 32000
    num_layers: int = 2
    block_size: int = 8
    num_anchors: int = 64
    grad_accumulation_steps: int = 4
    max_grad_norm: float = 1.0


class NoValidAnchorsError(RuntimeError):
    pass


def sample_anchors(loss_mask: torch.Tensor, block_size: int, num_anchors: int):
    """Positions that are followed by a full block of supervised tokens."""
    windows = loss_mask.unfold(1, block_size, 1).all(dim=-1)
    batch_idx, pos = windows.nonzero(as_tuple=True)
    if batch_idx.numel() == 0:
        raise NoValidAnchorsError("every sample of the micro batch is too short for a block")
    pick = torch.randperm(batch_idx.numel(), device=loss_mask.device)[:num_anchors]
    return batch_idx[pick], pos[pick]


class DFlashDraftModel(nn.Module):
    def __init__(self, cfg: DFlashConfig):
        super().__init__()
        self.block_size = cfg.block_size
        layer = nn.TransformerEncoderLayer(cfg.hidden_size, 16, 4 * cfg.hidden_size, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, cfg.num_layers)
        self.mask_embed = nn.Parameter(torch.zeros(cfg.block_size, cfg.hidden_size))
        self.lm_head = nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False)

    def forward(self, hidden, labels, batch_idx, pos):
        context = hidden[batch_idx, pos].unsqueeze(1)
        x = self.layers(context + self.mask_embed)
        offsets = torch.arange(self.block_size, device=pos.device)
        target = labels[batch_idx.unsqueeze(1), pos.unsqueeze(1) + offsets]
        return F.cross_entropy(self.lm_head(x).flatten(0, 1), target.flatten())


class DFlashTrainer:
    def __init__(self, target_model, draft: DFlashDraftModel, cfg: DFlashConfig, device):
        self.target = target_model.eval().requires_grad_(False)
        self.draft = DistributedDataParallel(draft.to(device), device_ids=[device.index])
        self.optimizer = torch.optim.AdamW(draft.parameters(), lr=6e-4)
        self.cfg, self.device = cfg, device

    @torch.no_grad()
    def target_hidden(self, input_ids):
        return self.target(input_ids, output_hidden_states=True).hidden_states[-1]

    def train_epoch(self, loader):
        accumulated, losses = 0, []
        for batch in loader:
            input_ids = batch["input_ids"].to(self.device)
            loss_mask = batch["loss_mask"].to(self.device).bool()
            try:
                batch_idx, pos = sample_anchors(loss_mask, self.cfg.block_size, self.cfg.num_anchors)
            except NoValidAnchorsError:
                continue  # BUG
            hidden = self.target_hidden(input_ids)
            last = accumulated + 1 == self.cfg.grad_accumulation_steps
            with nullcontext() if last else self.draft.no_sync():
                loss = self.draft(hidden, batch["labels"].to(self.device), batch_idx, pos)
                (loss / self.cfg.grad_accumulation_steps).backward()
            losses.append(loss.detach())
            accumulated += 1
            if last:
                nn.utils.clip_grad_norm_(self.draft.parameters(), self.cfg.max_grad_norm)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                accumulated = 0
        mean = torch.stack(losses).mean() if losses else torch.zeros((), device=self.device)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        return mean
