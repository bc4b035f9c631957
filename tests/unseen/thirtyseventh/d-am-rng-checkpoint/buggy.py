# thread: https://github.com/NVIDIA-NeMo/Automodel/pull/3437
"""Random state, model and optimizer parts of a training checkpoint."""
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


class StatefulRNG:
    """Every process draws its own stream; no two ranks share tokens and layers."""

    def __init__(self, seed):
        seed = seed + dist.get_rank()
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        torch.cuda.manual_seed(seed)

    def state_dict(self):
        return {
            "random": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(),
        }

    def load_state_dict(self, state):
        random.setstate(state["random"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"])
        torch.cuda.set_rng_state(state["cuda"])


class Checkpointer:
    def __init__(self, root, device_mesh):
        self.root, self.mesh = root, device_mesh

    def step_dir(self, step):
        return os.path.join(self.root, f"step_{step}")

    def aux_path(self, step, name):
        return os.path.join(self.step_dir(step), f"{name}_dp_{self.mesh['dp'].get_local_rank()}.pt")

    def loader_path(self, step):
        return os.path.join(self.step_dir(step), f"loader_dp_{self.mesh['dp'].get_local_rank()}.pt")

    def first_of_replica(self):
        return self.mesh["cp"].get_local_rank() == 0 and self.mesh["pp"].get_local_rank() == 0

    def save(self, step, model, optimizer, scheduler, rng, loader):
        os.makedirs(self.step_dir(step), exist_ok=True)
        dist.barrier()
        model_state, optim_state = get_state_dict(model, optimizer)
        dcp.save(
            {"model": model_state, "optim": optim_state, "sched": scheduler.state_dict()},
            checkpoint_id=self.step_dir(step),
        )
        if self.first_of_replica():
            torch.save(loader.state_dict(), self.loader_path(step))
            torch.save(rng.state_dict(), self.aux_path(step, "rng"))  # BUG
        dist.barrier()

    def load(self, step, model, optimizer, scheduler, rng, loader):
        model_state, optim_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optim": optim_state, "sched": scheduler.state_dict()}
        dcp.load(state, checkpoint_id=self.step_dir(step))
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optim"],
        )
        scheduler.load_state_dict(state["sched"])
        loader.load_state_dict(torch.load(self.loader_path(step), weights_only=False))
        rng.load_state_dict(torch.load(self.aux_path(step, "rng"), weights_only=False))
        dist.barrier()
