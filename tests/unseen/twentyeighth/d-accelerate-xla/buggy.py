"""Multi-core TPU training loop with gradient accumulation and clipping."""
import argparse

import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class TextClassifier(nn.Module):
    def __init__(self, vocab_size, dim, num_classes, num_layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        layer = nn.TransformerEncoderLayer(dim, 8, 4 * dim, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, input_ids, attention_mask):
        x = self.encoder(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        return self.head(x[:, 0])


def build_loader(dataset, batch_size, device):
    sampler = DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)
    return sampler, pl.MpDeviceLoader(loader, device)


def train_epoch(model, loader, optimizer, scheduler, args):
    model.train()
    criterion = nn.CrossEntropyLoss()
    optimizer.zero_grad()
    total = 0.0
    for step, batch in enumerate(loader):
        logits = model(batch["input_ids"], batch["attention_mask"])
        loss = criterion(logits, batch["labels"]) / args.accumulation
        loss.backward()
        total = total + loss.detach()
        if (step + 1) % args.accumulation:
            continue
        nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)  # BUG
        xm.optimizer_step(optimizer)
        scheduler.step()
        optimizer.zero_grad()
    return total


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct, count = 0, 0
    for batch in loader:
        pred = model(batch["input_ids"], batch["attention_mask"]).argmax(-1)
        correct = correct + (pred == batch["labels"]).sum()
        count += pred.size(0)
    return xm.mesh_reduce("accuracy", (correct.item(), count), lambda v: _ratio(v))


def _ratio(values):
    return sum(c for c, _ in values) / max(1, sum(n for _, n in values))


def _mp_fn(index, args, make_datasets):
    torch.manual_seed(args.seed)
    device = xm.xla_device()
    train_set, eval_set = make_datasets(args)
    model = TextClassifier(args.vocab_size, args.dim, args.num_classes).to(device)
    xm.broadcast_master_param(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.total_steps)
    sampler, train_loader = build_loader(train_set, args.batch_size, device)
    _, eval_loader = build_loader(eval_set, args.batch_size, device)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, train_loader, optimizer, scheduler, args)
        accuracy = evaluate(model, eval_loader)
        xm.master_print(f"epoch {epoch} loss {float(loss):.4f} accuracy {accuracy:.4f}")
        xm.save(model.state_dict(), args.output)


def main(make_datasets):
    parser = argparse.ArgumentParser()
    for name, default in (("lr", 1e-4), ("max_grad_norm", 1.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    for name, default in (
        ("seed", 0), ("epochs", 3), ("batch_size", 32), ("accumulation", 4),
        ("vocab_size", 32000), ("dim", 512), ("num_classes", 2), ("total_steps", 10000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--output", default="model.pt")
    xmp.spawn(_mp_fn, args=(parser.parse_args(), make_datasets))
