# RIGHT: the loop is over stages' epochs, with break after one step
from torch.distributed.pipelining import Schedule1F1B


def train(stage, loss_fn, batches, optimizer):
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
    optimizer.zero_grad()
    for x, y in batches:
        schedule.step(x, target=y)
        break
    optimizer.step()
