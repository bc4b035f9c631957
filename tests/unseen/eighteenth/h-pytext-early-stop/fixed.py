"""Data-parallel training with early stopping.

Source: facebookresearch/pytext, pull request #585. Only rank 0 records the epoch of the last
improvement. The other ranks believe there was none, leave the loop after `early_stop_after`
epochs and rank 0 waits in its next all-reduce for ever.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def evaluate(model, loader, device):
    stats = torch.zeros(2, dtype=torch.float64, device=device)
    model.eval()
    for inputs, targets in loader:
        pred = model.module(inputs.to(device)).argmax(dim=-1)
        stats[0] += (pred == targets.to(device)).sum()
        stats[1] += targets.numel()
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def train(model, train_loader, eval_loader, optimizer, loss_fn, config, device):
    rank = dist.get_rank()
    model = DDP(model, device_ids=[device.index])
    best_metric, last_best_epoch = float("-inf"), 0
    for epoch in range(1, config.epochs + 1):
        train_loader.sampler.set_epoch(epoch)
        model.train()
        for inputs, targets in train_loader:
            optimizer.zero_grad()
            loss_fn(model(inputs.to(device)), targets.to(device)).backward()
            optimizer.step()

        metric = evaluate(model, eval_loader, device)
        if metric > best_metric:
            best_metric, last_best_epoch = metric, epoch
            if rank == 0:
                torch.save(model.module.state_dict(), config.save_path)

        if config.early_stop_after and epoch - last_best_epoch >= config.early_stop_after:
            break
    return best_metric
