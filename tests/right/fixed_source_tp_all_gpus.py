"""The model is split over all ranks of the job: rank 0 is in the only group."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


def main(model, prompts):
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=torch.cuda.device_count())
    group = parallel_state.get_tensor_model_parallel_group()
    tokens = torch.zeros(8, 128, dtype=torch.long, device="cuda")
    if dist.get_rank() == 0:
        tokens.copy_(prompts)
    dist.broadcast(tokens, src=0, group=group)
    return model(tokens)
