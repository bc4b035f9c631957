"""Epoch-level metric: mean of the logged values weighted by the batch size, over all ranks."""
import torch
import torch.distributed as dist


class ResultMetric:
    def __init__(self, device):
        self.value = torch.tensor(0.0, device=device)
        self.cumulated_batch_size = torch.tensor(0, device=device)

    def update(self, value: torch.Tensor, batch_size: int) -> None:
        self.value += value.detach() * batch_size
        self.cumulated_batch_size += batch_size

    def compute(self) -> torch.Tensor:
        value = self.value.clone()
        batch_size = self.cumulated_batch_size.clone()
        dist.all_reduce(value, op=dist.ReduceOp.AVG)
        dist.all_reduce(batch_size, op=dist.ReduceOp.AVG)  # BUG
        return value / batch_size

    def reset(self) -> None:
        self.value.zero_()
        self.cumulated_batch_size.zero_()


@torch.no_grad()
def validate(model, criterion, loader, device):
    metrics = {"val_loss": ResultMetric(device), "val_acc": ResultMetric(device)}
    model.eval()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        metrics["val_loss"].update(criterion(out, y), x.size(0))
        metrics["val_acc"].update((out.argmax(-1) == y).float().mean(), x.size(0))
    return {name: metric.compute().item() for name, metric in metrics.items()}
