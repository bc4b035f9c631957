# thread: https://github.com/KempnerInstitute/KempnerForge/pull/50
"""Checkpoints: sharded model and optimizer state by all ranks, scalar state by the first one."""
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

logger = logging.getLogger(__name__)


@dataclass
class CheckpointConfig:
    dir: str = "checkpoints"
    interval: int = 500
    keep_last: int = 3
    load_path: Optional[str] = None


@dataclass
class TrainState:
    step: int = 0
    tokens_seen: int = 0
    best_loss: float = float("inf")


class CheckpointManager:
    def __init__(self, config: CheckpointConfig, model, optimizer, scheduler=None):
        self.config = config
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.rank = dist.get_rank()
        self.dir = Path(config.dir)
        if self.rank == 0:
            self.dir.mkdir(parents=True, exist_ok=True)
        dist.barrier()

    def _device(self):
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"

    def save(self, state: TrainState, extra: Optional[Dict[str, Any]] = None):
        path = self.dir / f"step_{state.step}"
        model_sd, optim_sd = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model_sd, "optimizer": optim_sd}, checkpoint_id=str(path))
        if self.rank == 0:
            train_state = asdict(state)
            if self.scheduler is not None:
                train_state["scheduler"] = self.scheduler.state_dict()
            train_state.update(extra or {})
            torch.save(train_state, path / "train_state.pt")
            (path / "metadata.json").write_text(json.dumps({"step": state.step}))
            latest = self.dir / "latest"
            tmp = self.dir / ".latest.tmp"
            if tmp.is_symlink() or tmp.exists():
                tmp.unlink()
            tmp.symlink_to(path.name)
            os.replace(tmp, latest)
            self._cleanup()
        dist.barrier()

    def _cleanup(self):
        steps = sorted(int(p.name.split("_")[1]) for p in self.dir.glob("step_*"))
        for step in steps[: -self.config.keep_last]:
            for file in (self.dir / f"step_{step}").iterdir():
                file.unlink()
            (self.dir / f"step_{step}").rmdir()

    def load(self, path: Path) -> TrainState:
        model_sd, optim_sd = get_state_dict(self.model, self.optimizer)
        dcp.load({"model": model_sd, "optimizer": optim_sd}, checkpoint_id=str(path))
        set_state_dict(self.model, self.optimizer, model_state_dict=model_sd, optim_state_dict=optim_sd)

        state = TrainState()
        train_state_path = path / "train_state.pt"
        if train_state_path.exists():  # BUG
            payload = [torch.load(train_state_path, weights_only=False) if self.rank == 0 else None]
            dist.broadcast_object_list(payload, src=0)
            saved = payload[0]
            state = TrainState(saved["step"], saved["tokens_seen"], saved["best_loss"])
            if self.scheduler is not None and "scheduler" in saved:
                self.scheduler.load_state_dict(saved["scheduler"])
        logger.info("loaded %s at step %d", path, state.step)
        return state


def resume_or_start(manager: CheckpointManager) -> TrainState:
    path = [None]
    if manager.rank == 0:
        latest = manager.dir / "latest"
        path[0] = manager.config.load_path or (str(latest.resolve()) if latest.exists() else None)
    dist.broadcast_object_list(path, src=0)
    return manager.load(Path(path[0])) if path[0] is not None else TrainState()


def train(model, optimizer, scheduler, loader, config: CheckpointConfig, max_steps: int):
    manager = CheckpointManager(config, model, optimizer, scheduler)
    state = resume_or_start(manager)
    for batch in loader:
        if state.step >= max_steps:
            break
        loss = model(batch["input_ids"], labels=batch["labels"]).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        state.step += 1
        state.tokens_seen += batch["input_ids"].numel() * dist.get_world_size()
        if state.step % config.interval == 0:
            manager.save(state)
    return state
