"""Checkpointing of the FSDP actor: model, optimizer, random state, tracker file."""
import random
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful


class ActorState(Stateful):
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model_state, optimizer_state = get_state_dict(self.model, self.optimizer)
        return {"model": model_state, "optimizer": optimizer_state}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizer"],
        )


def get_rng_state():
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def set_rng_state(state):
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state(state["cuda"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])


def seed_everything(seed):
    """Dropout and sampling follow a different stream on every data-parallel rank."""
    seed = seed + dist.get_rank()
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _step_dir(root, step):
    return Path(root) / f"iter_{step:07d}"


def save(root, step, model, optimizer, lr_scheduler):
    path = _step_dir(root, step)
    path.mkdir(parents=True, exist_ok=True)
    dcp.save({"actor": ActorState(model, optimizer)}, checkpoint_id=path / "dcp")
    torch.save(get_rng_state(), path / f"rng_{dist.get_rank():05d}.pt")
    if dist.get_rank() == 0:
        torch.save({"step": step, "lr_scheduler": lr_scheduler.state_dict()}, path / "meta.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        (Path(root) / "latest_checkpointed_iteration.txt").write_text(str(step))


def load(root, model, optimizer, lr_scheduler):
    tracker = Path(root) / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        return 0
    path = _step_dir(root, int(tracker.read_text()))
    dcp.load({"actor": ActorState(model, optimizer)}, checkpoint_id=path / "dcp")
    meta = torch.load(path / "meta.pt", map_location="cpu", weights_only=False)
    lr_scheduler.load_state_dict(meta["lr_scheduler"])
    set_rng_state(torch.load(path / f"rng_{dist.get_rank():05d}.pt", weights_only=False))
    dist.barrier()
    return meta["step"]
