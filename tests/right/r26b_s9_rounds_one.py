# RIGHT: rounds is one: asserted
from torch.distributed.pipelining import Schedule1F1B


def train(stage, loss_fn, batches, optimizer, rounds):
    assert rounds == 1, "accumulation goes by microbatches of the schedule"
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
    optimizer.zero_grad()
    for _ in range(rounds):
        x, y = next(batches)
        schedule.step(x, target=y)
    optimizer.step()
