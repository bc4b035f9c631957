# RIGHT: first loop builds shapes with gradients thrown away, the second trains
from torch.distributed.pipelining import Schedule1F1B


def train(stage, loss_fn, probes, batches, optimizer):
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
    for x, y in probes:
        schedule.step(x, target=y)
    stage.submod.zero_grad(set_to_none=True)
    for x, y in batches:
        schedule.step(x, target=y)
        optimizer.step()
        optimizer.zero_grad()
