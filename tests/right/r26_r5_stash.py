# RIGHT: gradients of each round are moved into a buffer and cleared before the next round
from torch.distributed.pipelining import Schedule1F1B


def train(stage, loss_fn, batches, optimizer, rounds):
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
    params = [p for p in stage.submod.parameters() if p.requires_grad]
    sums = [p.new_zeros(p.shape) for p in params]
    for _ in range(rounds):
        x, y = next(batches)
        schedule.step(x, target=y)
        for s, p in zip(sums, params):
            s.add_(p.grad, alpha=1.0 / rounds)
            p.grad = None
    for s, p in zip(sums, params):
        p.grad = s
    optimizer.step()
