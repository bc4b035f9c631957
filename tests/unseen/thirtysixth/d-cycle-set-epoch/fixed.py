# thread: https://github.com/areal-project/AReaL/pull/632
"""Supervised warm-up of a policy before reinforcement learning."""
import argparse
import itertools
import os
from typing import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="Qwen/Qwen2.5-1.5B")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--total-steps", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--log-freq", type=int, default=10)
    return parser.parse_args()


def create_dataloader(dataset, rank, world_size, batch_size, collate_fn):
    if batch_size % world_size:
        raise ValueError(f"batch size ({batch_size}) must be divisible by world_size({world_size})!")
    sampler = DistributedSampler(dataset, world_size, rank, shuffle=True, drop_last=True)
    return StatefulDataLoader(
        dataset,
        batch_size=batch_size // world_size,
        sampler=sampler,
        drop_last=True,
        num_workers=4,
        collate_fn=collate_fn,
    )


def cycle_dataloader(dataloader: StatefulDataLoader) -> Iterator[dict]:
    """Batches without end."""
    for epoch in itertools.count():
        if isinstance(dataloader.sampler, DistributedSampler):
            dataloader.sampler.set_epoch(epoch)
        yield from dataloader


def make_collate(tokenizer, max_length):
    def collate(samples):
        texts = [s["prompt"] + s["answer"] + tokenizer.eos_token for s in samples]
        enc = tokenizer(texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
        prompt_lens = [len(tokenizer(s["prompt"])["input_ids"]) for s in samples]
        loss_mask = enc["attention_mask"].clone()
        for i, n in enumerate(prompt_lens):
            loss_mask[i, :n] = 0
        enc["loss_mask"] = loss_mask
        return enc

    return collate


class FSDPEngine:
    def __init__(self, args, world_size):
        self.mesh = init_device_mesh("cuda", (world_size,), mesh_dim_names=("dp",))
        model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16).cuda()
        for layer in model.model.layers:
            fully_shard(layer, mesh=self.mesh)
        self.model = fully_shard(model, mesh=self.mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.world_size, self.grad_clip = world_size, args.grad_clip

    def train_batch(self, batch):
        mask = batch["loss_mask"][:, 1:].float()
        total = mask.sum()
        dist.all_reduce(total, group=self.mesh.get_group())
        logits = self.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        losses = F.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), batch["input_ids"][:, 1:].flatten(), reduction="none"
        )
        loss = (losses * mask.flatten()).sum() / total.clamp(min=1)
        self.optimizer.zero_grad()
        (loss * self.world_size).backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
        self.optimizer.step()
        stat = loss.detach().clone()
        dist.all_reduce(stat, group=self.mesh.get_group())
        return stat, grad_norm


def main(dataset):
    args = parse_args()
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    engine = FSDPEngine(args, world_size)
    loader = create_dataloader(dataset, rank, world_size, args.batch_size, make_collate(tokenizer, args.max_length))
    data_generator = cycle_dataloader(loader)
    for step in range(args.total_steps):
        batch = {k: v.cuda() for k, v in next(data_generator).items()}
        loss, _ = engine.train_batch(batch)
        if rank == 0 and step % args.log_freq == 0:
            print(f"step {step} loss {loss.item():.4f}")
