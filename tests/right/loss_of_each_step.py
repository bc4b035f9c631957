from torch.nn.parallel import DistributedDataParallel as DDP


def truncated_bptt(net, sequences, opt, horizon):
    """The loss of a window is the sum over its steps."""
    model = DDP(net)
    for seq in sequences:
        state = None
        for t, x in enumerate(seq):
            y, state = model(x, state)
            y.mean().backward(retain_graph=True)
            if (t + 1) % horizon == 0:
                opt.step()
                opt.zero_grad()
                state = state.detach()


def sum_of_tasks(net, batches, opt, num_tasks):
    """The loss is the sum of the losses of the tasks, one batch of each in turn."""
    model = DDP(net)
    for i, batch in enumerate(batches):
        model(batch).mean().backward()
        if (i + 1) % num_tasks == 0:
            opt.step()
            opt.zero_grad()
