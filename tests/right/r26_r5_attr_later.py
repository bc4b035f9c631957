# RIGHT: the attribute is set behind the constructor
from torch.distributed.pipelining import Schedule1F1B


def train(stage, loss_fn, batches, optimizer, rounds, n=8):
    schedule = Schedule1F1B(stage, n_microbatches=n, loss_fn=lambda o, t: loss_fn(o, t) / (n * rounds))
    schedule.scale_grads = False
    optimizer.zero_grad()
    for _ in range(rounds):
        x, y = next(batches)
        schedule.step(x, target=y)
    optimizer.step()
