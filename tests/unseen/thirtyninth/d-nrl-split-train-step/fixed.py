"""Policy worker whose train step is driven from outside, one micro-batch at a time."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.distributed.finalize_model_grads import finalize_model_grads


class MegatronPolicyWorker:
    def __init__(self, chunks, optimizer, scheduler, loss_fn):
        # chunks: list of DistributedDataParallel, built with calculate_per_token_loss
        # the transformer config has qk_layernorm and sequence_parallel on
        assert all(isinstance(c, DistributedDataParallel) for c in chunks)
        self.chunks, self.optimizer, self.scheduler = chunks, optimizer, scheduler
        self.loss_fn = loss_fn
        self.num_tokens = None

    def begin_train_step(self):
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        self.num_tokens = torch.zeros((), dtype=torch.int64, device="cuda")

    def train_microbatch(self, batch):
        (model,) = self.chunks
        with model.no_sync():
            logits = model(batch["input_ids"], batch["position_ids"], None)
            loss_sum = self.loss_fn(logits, batch)
            loss_sum.backward()
        self.num_tokens += batch["token_mask"].sum()
        return loss_sum.detach()

    def finish_train_step(self):
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        dist.all_reduce(self.num_tokens, group=group)
        scale = 1.0 / self.num_tokens.clamp(min=1).item()
        for chunk in self.chunks:
            chunk.scale_gradients(scale)
        finalize_model_grads(self.chunks)
        ok, grad_norm, _ = self.optimizer.step()
        if ok:
            self.scheduler.step(increment=1)
        return grad_norm
