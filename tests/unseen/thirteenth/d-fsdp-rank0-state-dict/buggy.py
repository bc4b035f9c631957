"""Save a full checkpoint of an FSDP model from rank 0.

Source: pytorch/pytorch issue #122903.
"""
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)


def save_checkpoint(model: FSDP, optimizer, output_dir, step):
    save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    path = os.path.join(output_dir, f"model-{step}.pt")
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), path)  # BUG
    dist.barrier()


def train(model, loader, optimizer, output_dir, save_every):
    model = FSDP(model, device_id=torch.cuda.current_device(), use_orig_params=True)
    for step, (tokens, labels) in enumerate(loader):
        logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % save_every == 0:
            save_checkpoint(model, optimizer, output_dir, step)
