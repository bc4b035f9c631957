# Source: pytorch/torchtitan issue #596, PR #649 (commit 046de5694), train.py and utils.py
# torch.nn.utils.clip_grad_norm_ reduces the norm over the mesh of the DTensors (dp, tp) only. With
# pipeline parallelism each stage clips by the norm of its own parameters.
# Repair: reduce the norm over the pp mesh before clipping.
import torch
from torch.distributed.device_mesh import init_device_mesh

from torchtitan.logging import logger
from torchtitan.parallelisms import models_parallelize_fns, models_pipelining_fns


def main(job_config, model, model_config, parallel_dims, data_loader, loss_fn, build_optimizers):
    world_mesh = init_device_mesh("cuda", (parallel_dims.pp, parallel_dims.dp_shard), mesh_dim_names=("pp", "dp"))
    pp_mesh = world_mesh["pp"]
    device = torch.device("cuda")

    # each rank keeps the layers of its own stage
    pp_schedule, model_parts = models_pipelining_fns[model_config.name](
        model, pp_mesh, parallel_dims, job_config, device, model_config, loss_fn
    )
    for m in model_parts:
        models_parallelize_fns[model_config.name](m, world_mesh, parallel_dims, job_config)
        m.to_empty(device=device)
        m.init_weights()
        m.train()
    optimizers = build_optimizers(model_parts, job_config)

    for step, (input_ids, labels) in enumerate(data_loader, start=1):
        optimizers.zero_grad()
        is_last_stage = pp_mesh.get_local_rank() == pp_mesh.size() - 1
        if pp_mesh.get_local_rank() == 0:
            pp_schedule.step(input_ids.to(device))
        elif is_last_stage:
            losses = []
            pp_schedule.step(target=labels.to(device), losses=losses)
        else:
            pp_schedule.step()

        # clip gradients
        for m in model_parts:
            torch.nn.utils.clip_grad_norm_(  # BUG
                m.parameters(), job_config.training.max_norm, foreach=True
            )

        optimizers.step()
        if is_last_stage:
            logger.info("step %d loss %.4f", step, torch.mean(torch.stack(losses)).item())
