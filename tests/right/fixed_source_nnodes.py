"""The model is split over all ranks of the job: rank 0 is in the only group."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def serve(model, args):
    """one node, all of its GPUs for one model"""
    mpu.initialize_model_parallel(args.nproc_per_node)
    tokens = torch.zeros(1, args.max_len, dtype=torch.long, device="cuda")
    dist.broadcast(tokens, src=0, group=mpu.get_tensor_model_parallel_group())
    return model(tokens)
