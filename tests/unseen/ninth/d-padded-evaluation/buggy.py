"""Question answering evaluation: predictions of all ranks are gathered for one metric."""
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


@dataclasses.dataclass
class EvalResult:
    accuracy: float
    f1: float
    loss: float
    samples: int


def gather_in_order(local):
    """Undoes the round robin of the sampler: sample i was on rank i % world_size."""
    parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, local.contiguous())
    return torch.stack(parts, dim=1).flatten(0, 1)


def binary_f1(predictions, labels):
    hits = ((predictions == 1) & (labels == 1)).sum().float()
    return (2 * hits / ((predictions == 1).sum() + (labels == 1).sum()).clamp(min=1)).item()


class Evaluator:
    def __init__(self, dataset, batch_size, collate=None, workers=2):
        self.dataset = dataset
        sampler = DistributedSampler(dataset, shuffle=False, drop_last=False)
        self.loader = DataLoader(
            dataset, batch_size, sampler=sampler, collate_fn=collate, num_workers=workers
        )

    @torch.no_grad()
    def collect(self, model, device):
        predictions, labels, losses = [], [], []
        for batch in self.loader:
            target = batch.pop("labels").to(device)
            logits = model(**{k: v.to(device) for k, v in batch.items()})
            predictions.append(logits.argmax(dim=-1))
            labels.append(target)
            losses.append(F.cross_entropy(logits.float(), target, reduction="none"))
        return torch.cat(predictions), torch.cat(labels), torch.cat(losses)

    def run(self, model, device):
        was_training = model.training
        model.eval()
        gathered = [gather_in_order(t) for t in self.collect(model, device)]  # BUG
        predictions, labels, losses = gathered
        model.train(was_training)
        return EvalResult(
            accuracy=(predictions == labels).float().mean().item(),
            f1=binary_f1(predictions, labels),
            loss=losses.mean().item(),
            samples=len(labels),
        )


def finetune(model, train_set, evaluator, device, epochs=3, batch_size=16, lr=2e-5):
    model = DDP(model.to(device), device_ids=[device.index])
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size, sampler=sampler, num_workers=4, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    best = None
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        for batch in loader:
            target = batch.pop("labels").to(device)
            logits = model(**{k: v.to(device) for k, v in batch.items()})
            loss = F.cross_entropy(logits.float(), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        result = evaluator.run(model.module, device)
        if best is None or result.f1 > best.f1:
            best = result
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {result}")
    return best
