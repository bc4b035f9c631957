import torch, torch.distributed as dist, torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, mesh, accum):
        fully_shard(model, mesh=mesh)
        self.model, self.mesh, self.accum = model, mesh, accum
        self.opt = torch.optim.AdamW(model.parameters())

    def count(self, batches):
        n = sum((b["labels"] != -100).sum() for b in batches)
        n = n.to(torch.float32).cuda()
        dist.all_reduce(n, op=dist.ReduceOp.AVG, group=self.mesh.get_group())
        return n

    def step(self, batches):
        n = self.count(batches)
        for i, b in enumerate(batches):
            self.model.set_requires_gradient_sync(i + 1 == len(batches))
            out = self.model(b["ids"])
            loss = F.cross_entropy(out.flatten(0, 1), b["labels"].flatten(), reduction="sum", ignore_index=-100) / n
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad()
