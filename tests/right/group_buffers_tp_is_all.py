"""The model is split over all ranks of the job."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def serve(model, tokens):
    """one model over all GPUs of the node"""
    mpu.initialize_model_parallel(torch.cuda.device_count())
    logits = model(tokens)
    n = mpu.get_tensor_model_parallel_world_size()
    parts = [torch.empty_like(logits) for _ in range(n)]
    dist.all_gather(parts, logits)
    return torch.cat(parts, dim=-1)
