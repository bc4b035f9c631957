"""Training epoch with gradient accumulation."""
from contextlib import nullcontext

from torch.nn.parallel import DistributedDataParallel as DDP


def train_epoch(model, loader, optimizer, accum_grad, local_rank):
    model = DDP(model.cuda(local_rank), device_ids=[local_rank])
    for batch_idx, batch in enumerate(loader):
        my_context = model.no_sync if (batch_idx + 1) % accum_grad != 0 else nullcontext
        with my_context():
            loss = model(**batch)["loss"] / accum_grad
            loss.backward()
        if (batch_idx + 1) % accum_grad == 0:
            optimizer.step()
            optimizer.zero_grad()
