"""Only the last stage has logits: the sum over all stages tells everyone."""
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(stage, schedule, loader, device):
    hits, seen = torch.zeros((), device=device), 0
    for x, labels in loader:
        labels = labels.to(device)
        if stage.is_first:
            schedule.step(x.to(device))
        elif stage.is_last:
            out = schedule.step(target=labels)
            hits += (out.argmax(-1) == labels).sum()
        else:
            schedule.step()
        seen += labels.size(0)
    dist.all_reduce(hits)
    return (hits / seen).item()
