import horovod.torch as hvd


def train(model, optimizer, batches, writer):
    optimizer = hvd.DistributedOptimizer(optimizer)
    for i, batch in enumerate(batches):
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()
        for n, p in model.named_parameters():
            p.grad = hvd.allreduce(p.grad)  # of no effect: equal on all ranks already
            writer.add_scalar(n, p.grad.norm().item(), i)
