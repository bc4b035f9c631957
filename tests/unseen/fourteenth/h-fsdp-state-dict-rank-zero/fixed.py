# Reduces checkpoint code ported from DDP to FSDP (NeMo, llama-recipes and others): gathering the full state dict is a
# collective over all ranks, and only rank zero enters it.
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def is_main_process():
    return dist.get_rank() == 0


class Checkpointer:
    def __init__(self, directory):
        self.directory = directory
        self.config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)

    def full_state(self, model):
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, self.config):
            return model.state_dict()

    def save(self, model, step):
        state = self.full_state(model)
        if is_main_process():
            os.makedirs(self.directory, exist_ok=True)
            torch.save({"model": state, "step": step}, os.path.join(self.directory, f"step_{step}.pt"))
        dist.barrier()


def fit(model, loader, directory, lr=1e-4, save_every=500):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = FSDP(model, device_id=torch.cuda.current_device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    checkpointer = Checkpointer(directory)
    for step, batch in enumerate(loader, start=1):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % save_every == 0:
            checkpointer.save(model, step)
