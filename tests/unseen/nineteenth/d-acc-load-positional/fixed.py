"""Load a full state dict of rank 0 into an FSDP2 model. huggingface/accelerate, pull request #3982."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import distribute_tensor


def fsdp2_load_full_state_dict(accelerator, model, full_sd):
    """full_sd: on the main process the state dict taken before fully_shard (a quantised
    model stores absmax and quant_map entries next to each weight), elsewhere empty."""
    meta_sharded_sd = model.state_dict()
    sharded_sd = {}

    if accelerator.is_main_process:
        for name, sharded_param in meta_sharded_sd.items():
            full_param = full_sd[name]
            mesh = sharded_param.device_mesh
            full_param = full_param.detach().to(mesh.device_type, dtype=sharded_param.dtype)
            dist.broadcast(full_param, src=0)
            sharded_sd[name] = distribute_tensor(full_param, mesh, sharded_param.placements)
    else:
        for name, sharded_param in meta_sharded_sd.items():
            mesh = sharded_param.device_mesh
            full_param = torch.empty(
                sharded_param.size(), device=mesh.device_type, dtype=sharded_param.dtype
            )
            dist.broadcast(full_param, src=0)
            sharded_sd[name] = distribute_tensor(full_param, mesh, sharded_param.placements)

    model.load_state_dict(sharded_sd, assign=True)
    return model


def prepare(accelerator, model, shard_fn):
    full_sd = model.state_dict() if accelerator.is_main_process else {}
    model = model.to("meta")
    model = shard_fn(model)
    return fsdp2_load_full_state_dict(accelerator, model, full_sd)
