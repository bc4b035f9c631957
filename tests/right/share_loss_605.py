import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def _share_loss(loss):
    dist.broadcast(loss, mpu.get_pipeline_model_parallel_last_rank(), group=mpu.get_pipeline_model_parallel_group())


def _share_nothing():
    loss = torch.zeros(1, device="cuda")
    dist.broadcast(loss, mpu.get_pipeline_model_parallel_last_rank(), group=mpu.get_pipeline_model_parallel_group())
    return loss


def after_step(losses):
    loss = None
    if mpu.is_pipeline_last_stage():
        loss = torch.stack(losses).mean()
        _share_loss(loss)
    if loss is None:
        loss = _share_nothing()
    return loss.item()
