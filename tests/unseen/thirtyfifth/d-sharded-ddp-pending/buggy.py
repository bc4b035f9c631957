"""Data parallelism that reduces each gradient to the rank owning its optimizer state."""
# thread: facebookresearch/fairscale#1172
import torch
import torch.distributed as dist


class ShardedDataParallel(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.work = module, []
        self.owner = {p: i % dist.get_world_size() for i, p in enumerate(module.parameters())}
        for p in module.parameters():
            dist.broadcast(p.data, src=0)
            p.register_post_accumulate_grad_hook(self._reduce)

    def _reduce(self, p):
        p.grad.div_(dist.get_world_size())
        self.work.append(dist.reduce(p.grad, dst=self.owner[p], async_op=True))

    def try_consume_work_handles(self):
        self.work = [w for w in self.work if not w.is_completed()]

    def consume_work_handles(self):
        for w in self.work:
            w.wait()
        self.work = []

    def forward(self, *args):
        return self.module(*args)


def train(model, loader, loss_fn, make_optimizer):
    ddp = ShardedDataParallel(model)
    rank = dist.get_rank()
    optimizer = make_optimizer([p for p, r in ddp.owner.items() if r == rank])
    for x, y in loader:
        loss_fn(ddp(x), y).backward()
        ddp.try_consume_work_handles()  # BUG: drops the finished handles, does not wait for the others
        optimizer.step()
        for p, r in ddp.owner.items():
            dist.broadcast(p.data, src=r)
        model.zero_grad(set_to_none=True)
