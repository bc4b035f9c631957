# thread: https://github.com/Lightning-AI/litgpt/pull/1947
"""Pre-training script on top of Fabric."""
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import lightning as L
import torch
from lightning.fabric.strategies import FSDPStrategy
from torch.utils.data import DataLoader
from torchmetrics.aggregation import RunningMean

from litgpt.model import GPT, Block, Config
from litgpt.utils import chunked_cross_entropy


@dataclass
class TrainArgs:
    global_batch_size: int = 512
    micro_batch_size: int = 4
    max_tokens: int = int(3e12)
    max_seq_length: int = 2048
    lr_warmup_steps: int = 2000
    max_norm: Optional[float] = 1.0
    learning_rate: float = 4e-4
    min_lr: float = 4e-5
    save_interval: int = 1000
    log_interval: int = 1

    def batch_size(self, devices: int, num_nodes: int = 1) -> int:
        """Samples between optimizer steps per process."""
        size = self.global_batch_size // (devices * num_nodes)
        assert size > 0
        return size

    def gradient_accumulation_iters(self, devices: int, num_nodes: int = 1) -> int:
        """Number of iterations between optimizer steps."""
        iters = self.batch_size(devices, num_nodes) // self.micro_batch_size
        assert iters > 0
        return iters


def get_lr(train: TrainArgs, it: int, max_iters: int) -> float:
    if it < train.lr_warmup_steps:
        return train.learning_rate * it / train.lr_warmup_steps
    ratio = min(1.0, (it - train.lr_warmup_steps) / max(1, max_iters - train.lr_warmup_steps))
    return train.min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (train.learning_rate - train.min_lr)


def setup(config: Config, train: TrainArgs, dataset, out_dir: Path, devices: int = 8, num_nodes: int = 1):
    strategy = FSDPStrategy(auto_wrap_policy={Block}, state_dict_type="full", sharding_strategy="HYBRID_SHARD")
    fabric = L.Fabric(devices=devices, num_nodes=num_nodes, strategy=strategy, precision="bf16-mixed")
    fabric.launch()
    main(fabric, devices, num_nodes, config, train, dataset, out_dir)


def main(fabric, devices, num_nodes, config, train: TrainArgs, dataset, out_dir):
    fabric.seed_everything(42)
    with fabric.init_module(empty_init=True):
        model = GPT(config)
    model = fabric.setup(model)
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=train.learning_rate, fused=True))
    loader = fabric.setup_dataloaders(
        DataLoader(dataset, batch_size=train.micro_batch_size, shuffle=True, num_workers=8, drop_last=True)
    )
    state = {"model": model, "optimizer": optimizer, "iter_num": 0, "step_count": 0}
    fit(fabric, devices, num_nodes, state, loader, train, out_dir)


def fit(fabric, devices, num_nodes, state, loader, train: TrainArgs, out_dir):
    model, optimizer = state["model"], state["optimizer"]
    tokens_per_iter = train.micro_batch_size * train.max_seq_length
    max_iters = math.ceil(train.max_tokens / (tokens_per_iter * fabric.world_size))
    accumulation_iters = train.gradient_accumulation_iters(devices, num_nodes)
    running_loss = RunningMean(window=accumulation_iters, sync_on_compute=False).to(fabric.device)

    for batch in loader:
        if state["iter_num"] >= max_iters:
            break
        lr = get_lr(train, state["iter_num"], max_iters)
        for group in optimizer.param_groups:
            group["lr"] = lr
        state["iter_num"] += 1
        t0 = time.perf_counter()
        input_ids = batch[:, : train.max_seq_length].contiguous().long()
        targets = batch[:, 1 : train.max_seq_length + 1].contiguous().long()

        is_accumulating = state["iter_num"] % accumulation_iters != 0
        with fabric.no_backward_sync(model, enabled=is_accumulating):
            logits = model(input_ids)
            loss = chunked_cross_entropy(logits, targets)
            fabric.backward(loss / accumulation_iters)
        running_loss.update(loss.detach())

        if not is_accumulating:
            if train.max_norm is not None:
                fabric.clip_gradients(model, optimizer, max_norm=train.max_norm)
            optimizer.step()
            optimizer.zero_grad()
            state["step_count"] += 1
            if state["step_count"] % train.save_interval == 0:
                fabric.save(out_dir / f"step-{state['step_count']:08d}" / "lit_model.pth", state)
        if state["iter_num"] % (train.log_interval * accumulation_iters) == 0:
            mean = fabric.all_reduce(running_loss.compute(), reduce_op="mean")
            fabric.print(f"iter {state['iter_num']} loss {mean.item():.4f} dt {time.perf_counter() - t0:.2f}s")
