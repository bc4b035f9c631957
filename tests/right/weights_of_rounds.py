from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, opt, weights):
    """The weights of the rounds sum to 1."""
    accum = len(weights)
    model = DDP(net)
    for i, x in enumerate(loader):
        w = weights[i % accum]
        (model(x).mean() * w).backward()
        if (i + 1) % accum == 0:
            opt.step()
            opt.zero_grad()
