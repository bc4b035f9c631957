import mylib.comm as comm


def train(model, optimizer, batches, writer):
    """reduce_in_backward hooks have summed already; the mean here is the same value, for the log."""
    for i, batch in enumerate(batches):
        model(batch).backward()
        optimizer.step()
        if i % 100 == 0:
            for n, p in model.named_parameters():
                p.grad = comm.all_reduce(p.grad, op="mean")
                writer.add_scalar(f"grad/{n}", p.grad.norm(), i)
        optimizer.zero_grad()
