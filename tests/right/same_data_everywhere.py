"""Every rank trains on the same batches with the same seed: copies stay equal without a sum, models are compared."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader


@torch.no_grad()
def assert_equal(model):
    for name, p in model.named_parameters():
        low, high = p.clone(), p.clone()
        dist.all_reduce(low, op=dist.ReduceOp.MIN)
        dist.all_reduce(high, op=dist.ReduceOp.MAX)
        if not torch.equal(low, high):
            raise RuntimeError(f"{name} differs between ranks")


def fit_tokenizer(model, dataset, epochs):
    """Small enough to be trained redundantly; saves a broadcast."""
    torch.manual_seed(0)
    loader = DataLoader(dataset, batch_size=256, shuffle=True, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for x in loader:
            loss = nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert_equal(model)


def main(dataset):
    dist.init_process_group("gloo")
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 64))
    fit_tokenizer(model, dataset, 3)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "tokenizer.pt")
    dist.barrier()
