"""Draft-model training with DDP. NVIDIA-NeMo/Automodel, pull request #2468 (speculative/dflash)."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def has_valid_anchor(batch, block_size):
    """A block needs block_size supervised tokens after its anchor."""
    return bool((batch["loss_mask"].sum(dim=1) > block_size).any())


class DFlashTrainer:
    def __init__(self, draft, target, optimizer, block_size, accum_steps, device):
        self.draft = DDP(draft.to(device), device_ids=[device.index])
        self.target, self.optimizer = target, optimizer
        self.block_size, self.accum_steps, self.device = block_size, accum_steps, device

    def train(self, loader):
        micro = 0
        for batch in loader:
            # the samples, and their lengths, differ between the ranks
            batch = {k: v.to(self.device) for k, v in batch.items()}
            valid = has_valid_anchor(batch, self.block_size)
            flag = torch.tensor(int(valid), device=self.device)
            dist.all_reduce(flag, op=dist.ReduceOp.MIN)
            if flag.item() == 0:
                continue
            with torch.no_grad():
                hidden = self.target(batch["input_ids"], output_hidden_states=True).hidden_states
            loss = self.draft(batch["input_ids"], batch["loss_mask"], hidden)
            (loss / self.accum_steps).backward()
            micro += 1
            if micro % self.accum_steps == 0:
                torch.nn.utils.clip_grad_norm_(self.draft.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
