"""Checkpoints of an FSDP actor: sharded model and optimizer, scheduler, random number generators."""
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def rng_state():
    return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state()}


def save(actor, step: int, root: Path):
    path = root / f"iter_{step:07d}"
    path.mkdir(parents=True, exist_ok=True)
    model_state, optim_state = get_state_dict(actor.model, actor.optimizer)
    dcp.save({"model": model_state, "optimizer": optim_state}, checkpoint_id=str(path / "weights"))
    if dist.get_rank() == 0:
        torch.save(rng_state(), path / "rng.pt")  # BUG
        torch.save({"step": step, "scheduler": actor.scheduler.state_dict()}, path / "meta.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        (root / "latest_checkpointed_iteration.txt").write_text(str(step))


def load(actor, step: int, root: Path):
    path = root / f"iter_{step:07d}"
    model_state, optim_state = get_state_dict(actor.model, actor.optimizer)
    state = {"model": model_state, "optimizer": optim_state}
    dcp.load(state, checkpoint_id=str(path / "weights"))
    set_state_dict(
        actor.model, actor.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    rng = torch.load(path / "rng.pt", weights_only=True)
    torch.set_rng_state(rng["torch"])
    torch.cuda.set_rng_state(rng["cuda"])
    meta = torch.load(path / "meta.pt", weights_only=True)
    actor.scheduler.load_state_dict(meta["scheduler"])
    dist.barrier()
    return meta["step"]
