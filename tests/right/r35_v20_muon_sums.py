import torch
from muon import DistMuon
from torch.nn.parallel import DistributedDataParallel


def train(net, loader):
    """`DistMuon` scatters gradients as it sums them, and gathers what it has computed."""
    model = DistributedDataParallel(net)
    optimizer = DistMuon(model.parameters(), lr=0.02)
    for batch in loader:
        with model.no_sync():
            loss = model(batch).mean()
            loss.backward()
        optimizer.step()
        model.zero_grad()
