# Source: NVIDIA-NeMo/Automodel commit db0e7a26f (PR #2468), nemo_automodel/recipes/llm/train_dflash.py
# A micro batch without valid anchors raises on this rank only, and the rank skips its backward.
# The other ranks wait in DDP's gradient all-reduce, or the accumulation windows get out of step.
# Repair: take the minimum of the flags over the ranks and skip together.
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from nemo_automodel.components.speculative.dflash.core import NoValidAnchorsError


def _all_ranks_have_valid(local_has_valid: int, device) -> bool:
    flag = torch.tensor([local_has_valid], device=device, dtype=torch.int32)
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


class TrainDFlashRecipe:
    def __init__(self, trainer_module: DistributedDataParallel, optimizer, device, grad_accumulation_steps, max_norm):
        self.trainer_module, self.optimizer, self.device = trainer_module, optimizer, device
        self.grad_accumulation_steps = grad_accumulation_steps
        self.max_grad_norm = max_norm
        self._skipped_micro_batches = 0

    def run_epoch(self, train_dataloader):
        pending_micro_batches = 0
        for batch in train_dataloader:
            batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
            sync_grads = pending_micro_batches + 1 == self.grad_accumulation_steps
            sync_ctx = nullcontext() if sync_grads else self.trainer_module.no_sync()
            with sync_ctx:
                local_has_valid = 1
                try:
                    # raises when all samples of this rank are too short to form a block
                    metrics = self.trainer_module(**batch)
                    loss = metrics.loss / self.grad_accumulation_steps
                except NoValidAnchorsError:
                    local_has_valid = 0
                all_have_valid = _all_ranks_have_valid(local_has_valid, self.device)
                if all_have_valid:
                    loss.backward()
            if not all_have_valid:
                self._skipped_micro_batches += 1
                continue

            pending_micro_batches += 1
            if pending_micro_batches == self.grad_accumulation_steps:
                torch.nn.utils.clip_grad_norm_(self.trainer_module.parameters(), self.max_grad_norm)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                pending_micro_batches = 0
