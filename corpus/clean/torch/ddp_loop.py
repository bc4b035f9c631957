"""A training script with DistributedDataParallel, accumulation without synchronisation, evaluation and a checkpoint of rank 0."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def reduce_mean(tensor):
    tensor = tensor.detach().clone()
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor / dist.get_world_size()


def train_epoch(model, loader, optimizer, scaler, args, epoch):
    model.train()
    for step, (images, labels) in enumerate(loader):
        images = images.cuda(non_blocking=True)
        labels = labels.cuda(non_blocking=True)
        last = (step + 1) % args.accumulate == 0
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(images), labels, label_smoothing=0.1) / args.accumulate
            scaler.scale(loss).backward()
        if last:
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            mean = reduce_mean(loss) * args.accumulate
            if dist.get_rank() == 0:
                print(f"epoch {epoch} step {step}: loss {mean.item():.4f} norm {norm.item():.3f}")


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = torch.zeros(2, device="cuda")
    for images, labels in loader:
        predicted = model(images.cuda()).argmax(dim=1)
        correct[0] += (predicted == labels.cuda()).sum()
        correct[1] += labels.numel()
    dist.all_reduce(correct)
    return (correct[0] / correct[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(0)
    train_set, test_set = torch.load("data.pt")
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler, num_workers=4, pin_memory=True)
    test_loader = DataLoader(test_set, batch_size=64, sampler=DistributedSampler(test_set, shuffle=False))
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 10))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda()
    model = DDP(model, device_ids=[local_rank], output_device=local_rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size(), momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer, scaler, args, epoch)
        accuracy = evaluate(model, test_loader)
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), f"epoch-{epoch}.pt")
            print(f"accuracy {accuracy:.4f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
