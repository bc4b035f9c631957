from apex.contrib.optimizers import DistributedFusedAdam
from torch.nn.parallel import DistributedDataParallel


def train(net, loader):
    """The optimizer sums gradients over ranks itself."""
    model = DistributedDataParallel(net)
    optimizer = DistributedFusedAdam(model.parameters(), lr=1e-4)
    for batch in loader:
        with model.no_sync():
            model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
