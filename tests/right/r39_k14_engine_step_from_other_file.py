import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from myproject.engine import BaseEngine


class CPEngine(BaseEngine):
    """BaseEngine.optimizer_step() averages over self.cp_group before it steps."""

    def __init__(self, model, dp_group, cp_group, device):
        super().__init__(cp_group=cp_group)
        self.cp_group = cp_group
        self.model = DDP(model, device_ids=[device.index], process_group=dp_group)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.device = device

    def train_batch(self, batch):
        cp, r = dist.get_world_size(self.cp_group), dist.get_rank(self.cp_group)
        batch = {k: v.to(self.device).chunk(cp, dim=1)[r] for k, v in batch.items()}
        self.model(**batch).loss.backward()
        self.before_step(self.model)
        self.opt.step()
        self.opt.zero_grad()
