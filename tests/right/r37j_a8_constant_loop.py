import contextlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUM = 4


def train_step(model, microbatches, opt):
    """One global batch; ``microbatches`` has ACCUM entries on every rank."""
    assert len(microbatches) == ACCUM
    n = len(microbatches)
    for i, mb in enumerate(microbatches):
        sync = (i + 1) % ACCUM == 0
        ctx = contextlib.nullcontext() if sync else model.no_sync()
        with ctx:
            loss = model(mb["input_ids"].cuda(), labels=mb["labels"].cuda()).loss
            (loss / ACCUM).backward()
        if sync or i + 1 == n:
            opt.step()
            opt.zero_grad()


def main(net, stream, steps):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = DDP(net.cuda())
    opt = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        train_step(model, [next(stream) for _ in range(ACCUM)], opt)
