"""Collect per-token log-probabilities of the context-parallel ranks."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def split_cp_inputs(x, dim, mode):
    cp_size, cp_rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    if cp_size == 1:
        return x
    if mode == "contiguous":
        return x.chunk(cp_size, dim=dim)[cp_rank]
    chunks = x.chunk(2 * cp_size, dim=dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim=dim)


@torch.no_grad()
def reconstruct_tensor_cp(x, dim, mode):
    """Inverse of split_cp_inputs."""
    cp_size = mpu.get_context_parallel_world_size()
    if cp_size == 1:
        return x
    parts = [torch.empty_like(x) for _ in range(cp_size)]
    dist.all_gather(parts, x.contiguous(), group=mpu.get_context_parallel_group())
    front, back = zip(*(p.chunk(2, dim=dim) for p in parts))  # BUG
    return torch.cat([*front, *reversed(back)], dim=dim)


class MegatronGRPOTrainer:
    def __init__(self, args, old_policy, score):
        self.args, self.old_policy, self.score = args, old_policy, score

    @torch.no_grad()
    def old_per_token_logps(self, batch):
        mode = self.args.cp_partition_mode
        local = {
            k: split_cp_inputs(batch[k], 1, mode) for k in ("input_ids", "position_ids", "labels")
        }
        logps = self.score(self.old_policy, local)
        return reconstruct_tensor_cp(logps, 1, mode)

    def prepare(self, batch):
        batch["old_per_token_logps"] = self.old_per_token_logps(batch) * batch["completion_mask"]
        return batch
