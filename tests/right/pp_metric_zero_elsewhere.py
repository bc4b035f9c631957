"""Only the last stage has a loss; the others bring zeros, so that one sum over all ranks and one division do."""
import torch
import torch.distributed as dist


class Layout:
    def __init__(self, pp, tp):
        world = dist.get_world_size()
        self.pp, self.tp = pp, tp
        self.dp = world // (pp * tp)
        self.stage = dist.get_rank() // (self.dp * tp)

    @property
    def last(self):
        return self.stage == self.pp - 1


@torch.no_grad()
def reported_loss(losses, layout):
    """The mean over data-parallel ranks, known to every rank of the job."""
    shown = torch.zeros((), device="cuda")
    if layout.last:
        shown += torch.stack(losses).mean()
    # every rank of tp on the last stage brings the same value
    dist.all_reduce(shown)
    return (shown / (layout.dp * layout.tp)).item()


def evaluate(pipe, batches, layout):
    with torch.no_grad():
        losses = [loss for b in batches for loss in pipe.forward_only(b)]
    return reported_loss(losses, layout)


def main(pipe, train_batches, eval_batches, steps, pp, tp):
    layout = Layout(pp, tp)
    for step in range(steps):
        losses = pipe.train_step(next(train_batches))
        value = reported_loss(losses, layout)
        if dist.get_rank() == 0:
            print(step, value)
        if step % 100 == 0:
            print(evaluate(pipe, eval_batches, layout))
