import contextlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, opt, args):
        self.args = args
        # rounded up so that the last micro step ends a window
        self.total = -(-args.micro_steps // args.accum) * args.accum
        self.model, self.opt = DDP(model.cuda()), opt

    def run(self, stream):
        for i in range(self.total):
            batch = next(stream)
            sync = (i + 1) % self.args.accum == 0
            with contextlib.nullcontext() if sync else self.model.no_sync():
                loss = self.model(**batch).loss / self.args.accum
                loss.backward()
            if sync or i + 1 == self.total:
                self.opt.step()
                self.opt.zero_grad()
