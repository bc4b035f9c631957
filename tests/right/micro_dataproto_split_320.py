"""Mini-batch object with generator of micro-batches; mask counted on the mini-batch."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Policy:
    def __init__(self, net, lr, micro):
        self.net = DDP(net)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=lr)
        self.micro = micro

    def update(self, batch):
        mask = batch["mask"]
        tokens = mask.sum()
        dist.all_reduce(tokens)
        scale = dist.get_world_size() / tokens
        self.opt.zero_grad()
        for m in batch.split(self.micro):
            logp = self.net(m["ids"])
            ratio = (logp - m["old"]).exp()
            obj = torch.minimum(ratio * m["adv"], ratio.clamp(0.8, 1.2) * m["adv"])
            loss = -(obj * m["mask"]).sum() * scale
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
