from torch.nn.parallel import DistributedDataParallel


def train(net, loader, optimizer, comm):
    model = DistributedDataParallel(net)
    for batch in loader:
        with model.no_sync():
            model(batch).mean().backward()
        comm.mean_over_ranks([p.grad for p in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
