# RIGHT: update() steps and clears in each round; the last step finds no gradients (None) and does nothing
from torch.distributed.pipelining import Schedule1F1B


def update(optimizer):
    optimizer.step()
    optimizer.zero_grad()


def train(stage, loss_fn, batches, optimizer, rounds):
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
    for _ in range(rounds):
        x, y = next(batches)
        schedule.step(x, target=y)
        update(optimizer)
    optimizer.step()
