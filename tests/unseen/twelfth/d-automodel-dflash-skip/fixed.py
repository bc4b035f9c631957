"""Training loop of the DFlash draft model under DistributedDataParallel."""
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from nemo_automodel.components.speculative.dflash.core import NoValidAnchorsError


class TrainDFlashRecipe:
    def __init__(self, trainer_module, optimizer, max_grad_norm, grad_accumulation_steps, device):
        self.trainer_module = DDP(trainer_module, device_ids=[device])
        self.optimizer, self.max_grad_norm = optimizer, max_grad_norm
        self.grad_accumulation_steps, self.device = grad_accumulation_steps, device
        self._skipped_micro_batches = 0

    def run_epoch(self, dataloader):
        running_micro = 0
        for target_batch in dataloader:  # every rank reads its own samples
            sync_grads = (running_micro + 1) % self.grad_accumulation_steps == 0
            sync_ctx = nullcontext() if sync_grads else self.trainer_module.no_sync()
            with sync_ctx:
                has_valid = 1
                try:
                    metrics = self.trainer_module(
                        input_ids=target_batch.input_ids,
                        hidden_states=target_batch.hidden_states,
                        loss_mask=target_batch.loss_mask,
                    )
                    loss = metrics.loss / self.grad_accumulation_steps
                except NoValidAnchorsError:
                    # every sample of this micro-batch is too short to form a block
                    has_valid = 0
                flag = torch.tensor([has_valid], device=self.device, dtype=torch.int32)
                dist.all_reduce(flag, op=dist.ReduceOp.MIN)
                all_have_valid = bool(flag.item())
                if all_have_valid:
                    loss.backward()
            if not all_have_valid:
                self._skipped_micro_batches += 1
                continue

            running_micro += 1
            if running_micro % self.grad_accumulation_steps == 0:
                torch.nn.utils.clip_grad_norm_(self.trainer_module.parameters(), self.max_grad_norm)
                self.optimizer.step()
                self.optimizer.zero_grad()
