# RIGHT: a loop whose rounds clear gradients through set_to_none on the stage's module, inside of a function
from torch.distributed.pipelining import Schedule1F1B


def clear(params):
    for p in params:
        p.grad = None


def calibrate(stage, loss_fn, batches, optimizer):
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
    params = list(stage.submod.parameters())
    for x, y in batches:
        clear(params)
        schedule.step(x, target=y)
    optimizer.step()
