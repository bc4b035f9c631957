# RIGHT: accumulation refused above
from torch.distributed.pipelining import Schedule1F1B


def train(stage, loss_fn, batches, optimizer, accumulation):
    if accumulation > 1:
        raise ValueError("raise n_microbatches in place of accumulation")
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
    optimizer.zero_grad()
    for _ in range(accumulation):
        x, y = next(batches)
        schedule.step(x, target=y)
    optimizer.step()
