"""One optimizer step of the Megatron engine with token-mean loss."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def agg_loss(loss_mat, loss_mask, batch_num_tokens, dp_size, mode="token-mean"):
    if mode == "token-mean":
        return (loss_mat * loss_mask).sum() / batch_num_tokens * dp_size
    raise ValueError(f"unknown loss_agg_mode {mode}")


class MegatronEngine:
    def __init__(self, module, optimizer, loss_fn):
        # module is wrapped in DistributedDataParallel(average over dp x cp)
        self.module, self.optimizer, self.loss_fn = module, optimizer, loss_fn

    def prepare_batch(self, micro_batches):
        """micro_batches hold this context-parallel rank's part of every sequence."""
        num_tokens = torch.zeros((), device="cuda")
        for mb in micro_batches:
            num_tokens += mb["loss_mask"].sum()
        dist.all_reduce(num_tokens, group=mpu.get_data_parallel_group())  # BUG
        return num_tokens.clamp(min=1)

    def train_batch(self, micro_batches):
        batch_num_tokens = self.prepare_batch(micro_batches)
        dp_size = mpu.get_data_parallel_world_size(with_context_parallel=True)
        self.module.zero_grad_buffer()
        total = 0.0
        for mb in micro_batches:
            log_prob = self.module(mb["input_ids"], position_ids=mb["position_ids"], labels=mb["labels"])
            loss = agg_loss(self.loss_fn(log_prob, mb), mb["loss_mask"], batch_num_tokens, dp_size)
            loss.backward()
            total += loss.detach()
        self.module.finish_grad_sync()
        self.optimizer.step()
        return total / dp_size
