# NovaSky-AI/SkyRL pull request 1420 (commit 8376455c8)
"""Policy loss of a Megatron worker; advantages are already divided by the global token count."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def postprocess_logprobs(logprobs):
    """Gather the sequence shards of all context-parallel ranks; the local shard keeps its graph."""
    logprobs = logprobs.contiguous()
    parts = [torch.empty_like(logprobs) for _ in range(mpu.get_context_parallel_world_size())]
    dist.all_gather(parts, logprobs.detach(), group=mpu.get_context_parallel_group())
    parts[mpu.get_context_parallel_rank()] = logprobs
    return torch.cat(parts, dim=1)


class MegatronModelWrapper:
    def __init__(self, model, clip_eps):
        self.model, self.clip_eps = model, clip_eps

    def loss_func(self, logprobs, data):
        logprobs = postprocess_logprobs(logprobs)  # full sequence on every context-parallel rank
        ratio = torch.exp(logprobs - data["old_logprobs"])
        clipped = ratio.clamp(1 - self.clip_eps, 1 + self.clip_eps)
        policy_loss = -torch.min(ratio * data["advantages"], clipped * data["advantages"])
        policy_loss = (policy_loss * data["action_mask"]).sum()
        dp_size = mpu.get_data_parallel_world_size(with_context_parallel=True)
        grad_sum_correction_factor = data["num_microbatches"] * dp_size
        return policy_loss * grad_sum_correction_factor

    def forward_backward_mini_batch(self, micro_batches):
        for data in micro_batches:
            data["num_microbatches"] = len(micro_batches)
            loss = self.loss_func(self.model(data["sequences_shard"]), data)
            (loss / len(micro_batches)).backward()
        self.finalize_model_grads()

    def finalize_model_grads(self):
        group = mpu.get_data_parallel_group(with_context_parallel=True)
        for param in self.model.parameters():
            if param.grad is not None:
                param.grad.div_(dist.get_world_size(group))
                dist.all_reduce(param.grad, group=group)
