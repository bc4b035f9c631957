# RIGHT: GRADIENT_ACCUMULATION is 1: one round per optimizer step
from torch.distributed.pipelining import Schedule1F1B

GRADIENT_ACCUMULATION = 1


def train(stage, loss_fn, batches, optimizer):
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
    optimizer.zero_grad()
    for _ in range(GRADIENT_ACCUMULATION):
        x, y = next(batches)
        schedule.step(x, target=y)
    optimizer.step()
