# thread: https://github.com/NovaSky-AI/SkyRL/pull/1420
"""Policy update of a Megatron worker for reinforcement learning with sequence packing."""
from functools import partial

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.pipeline_parallel import get_forward_backward_func


def all_reduce_metrics(metrics, group, sum_keys=("policy_loss",)):
    """Losses carry a global denominator and are summed; the rest is averaged."""
    out = {}
    for key, value in metrics.items():
        t = torch.tensor(value, device="cuda", dtype=torch.float32)
        dist.all_reduce(t, op=dist.ReduceOp.SUM, group=group)
        if key not in sum_keys:
            t /= dist.get_world_size(group)
        out[key] = t.item()
    return out


class MegatronModelWrapper:
    def __init__(self, config, actor_module, optimizer, policy_loss_fn, logprob_fn):
        self.cfg = config
        self.actor_module = actor_module
        self.actor_optimizer = optimizer
        self.policy_loss_fn = policy_loss_fn
        self.logprob_fn = logprob_fn

    def forward_step(self, batch_iter, model):
        batch = next(batch_iter)
        logits = model(
            input_ids=batch["sequences"],
            position_ids=batch["position_ids"],
            attention_mask=batch["attention_mask"],
        )
        return logits, partial(self.loss_func, data=batch)

    def loss_func(self, logits, data):
        # log-probabilities of the full sequence, gathered over the context-parallel group
        action_log_probs = self.logprob_fn(
            logits, data["sequences"], cp_group=mpu.get_context_parallel_group()
        )[:, -data["num_actions"]:]

        policy_loss, clip_ratio = self.policy_loss_fn(
            action_log_probs,
            data["old_log_probs"],
            data["advantages"],
            eps_low=self.cfg.eps_clip_low,
            eps_high=self.cfg.eps_clip_high,
        )
        # token weights of the whole mini batch (all data-parallel ranks) add up to one
        policy_loss = (policy_loss * data["loss_weights"]).sum()

        # finalize_model_grads averages; the loss above is a share of a sum
        grad_sum_correction_factor = mpu.get_data_parallel_world_size(with_context_parallel=True)
        loss = policy_loss * grad_sum_correction_factor * data["num_microbatches"]
        metrics = {
            "policy_loss": policy_loss.detach().item(),
            "clip_ratio": clip_ratio.detach().item(),
            "response_length": float(data["num_actions"]),
        }
        return loss, metrics

    def forward_backward_mini_batch(self, micro_batches, seq_len, micro_batch_size):
        for micro in micro_batches:
            micro["num_microbatches"] = len(micro_batches)
        forward_backward = get_forward_backward_func()
        self.actor_optimizer.zero_grad()
        for chunk in self.actor_module:
            chunk.zero_grad_buffer()
        metrics_list = forward_backward(
            forward_step_func=self.forward_step,
            data_iterator=iter(micro_batches),
            model=self.actor_module,
            num_microbatches=len(micro_batches),
            seq_length=seq_len,
            micro_batch_size=micro_batch_size,
            forward_only=False,
        )
        _, grad_norm, _ = self.actor_optimizer.step()
        metrics = self._collect(metrics_list)
        metrics["grad_norm"] = grad_norm
        return metrics

    def _collect(self, metrics_list):
        if not mpu.is_pipeline_last_stage():
            return {}
        merged = {}
        for key in metrics_list[0]:
            values = [m[key] for m in metrics_list]
            merged[key] = sum(values) if key == "policy_loss" else sum(values) / len(values)
        return all_reduce_metrics(merged, mpu.get_data_parallel_group(with_context_parallel=False))
