"""Masked language model training on TPU cores with torch_xla."""
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader, DistributedSampler


class InverseSqrtSchedule:
    def __init__(self, optimizer, lr, warmup_updates):
        self.optimizer, self.lr, self.warmup = optimizer, lr, warmup_updates

    def step_update(self, num_updates):
        if num_updates < self.warmup:
            lr = self.lr * (num_updates + 1) / self.warmup
        else:
            lr = self.lr * (self.warmup / (num_updates + 1)) ** 0.5
        for group in self.optimizer.param_groups:
            group["lr"] = lr


class Trainer:
    def __init__(self, args, model, device):
        self.args = args
        self.device = device
        self.model = model.to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr, betas=(0.9, 0.98))
        self.lr_scheduler = InverseSqrtSchedule(self.optimizer, args.lr, args.warmup_updates)
        self.num_updates = 0

    def train_step(self, samples):
        self.model.train()
        self.optimizer.zero_grad()
        logging_loss = torch.zeros((), device=self.device)
        for sample in samples:
            logits = self.model(sample["net_input"])
            loss = F.cross_entropy(
                logits.flatten(0, 1), sample["target"].flatten(), ignore_index=self.args.pad_idx
            )
            loss = loss / len(samples)
            loss.backward()
            logging_loss += loss.detach()

        xm.reduce_gradients(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip_norm)
        self.optimizer.step()
        self.num_updates += 1
        self.lr_scheduler.step_update(self.num_updates)
        return logging_loss


def grouped(iterator, n):
    chunk = []
    for item in iterator:
        chunk.append(item)
        if len(chunk) == n:
            yield chunk
            chunk = []


def _mp_fn(index, args, build_model, dataset):
    device = xm.xla_device()
    torch.manual_seed(args.seed)
    trainer = Trainer(args, build_model(args), device)
    sampler = DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    for epoch in range(args.max_epoch):
        sampler.set_epoch(epoch)
        device_loader = pl.MpDeviceLoader(loader, device)
        for samples in grouped(device_loader, args.update_freq):
            loss = trainer.train_step(samples)
            if trainer.num_updates % args.log_interval == 0:
                loss = xm.mesh_reduce("train_loss", loss.item(), lambda v: sum(v) / len(v))
                xm.master_print(f"epoch {epoch} updates {trainer.num_updates} loss {loss:.4f}")
        xm.save(trainer.model.state_dict(), f"{args.save_dir}/checkpoint{epoch}.pt")


def main(args, build_model, dataset):
    xmp.spawn(_mp_fn, args=(args, build_model, dataset), start_method="fork")
