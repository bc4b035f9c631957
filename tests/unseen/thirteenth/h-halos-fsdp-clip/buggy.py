"""Preference training of an FSDP policy with gradient clipping.

Source: ContextualAI/HALOs issue #15, PrimeIntellect-ai/OpenDiloco PR #6.
"""
import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class FSDPTrainer:
    def __init__(self, policy, block_cls, config, rank):
        self.config = config
        self.rank = rank
        wrap_policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={block_cls})
        self.policy = FSDP(
            policy,
            auto_wrap_policy=wrap_policy,
            sharding_strategy=ShardingStrategy.FULL_SHARD,
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
            device_id=rank,
        )
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=config.lr)

    def clip_gradient(self):
        """Clip the gradient norm of the parameters of the policy."""
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.max_grad_norm)  # BUG
        return norm.item()

    def train(self, iterator, get_loss):
        for batch in iterator:
            self.policy.train()
            loss = get_loss(self.policy, batch)
            loss.backward()
            grad_norm = self.clip_gradient()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.rank == 0:
                print(f"loss {loss.item():.4f} grad_norm {grad_norm:.3f}")
