# RIGHT: gradients of each round are squared into a Fisher estimate and cleared by the model, then one step of a second optimizer
from torch.distributed.pipelining import ScheduleGPipe


def fisher(stage, loss_fn, batches, optimizer):
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=loss_fn)
    for x, y in batches:
        schedule.step(x, target=y)
        for p in stage.submod.parameters():
            p.fisher += p.grad.square()
            p.grad.zero_()
    schedule.step(x, target=y)
    optimizer.step()
