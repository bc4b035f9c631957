# RIGHT: one microbatch per step: division by one
from torch.distributed.pipelining import ScheduleGPipe


def train(stage, loss_fn, batches, optimizer, rounds):
    schedule = ScheduleGPipe(stage, n_microbatches=1, loss_fn=lambda o, t: loss_fn(o, t) / rounds)
    optimizer.zero_grad()
    for _ in range(rounds):
        x, y = next(batches)
        schedule.step(x, target=y)
    optimizer.step()
