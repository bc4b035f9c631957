"""Actor update over micro-batches of fixed or of dynamic size."""
import torch
from verl.utils.seqlen_balancing import rearrange_micro_batches


class DataParallelPPOActor:
    def __init__(self, config, actor_module, actor_optimizer):
        self.config, self.actor_module, self.actor_optimizer = config, actor_module, actor_optimizer

    def update_policy(self, mini_batch, policy_loss):
        # mini_batch: ppo_mini_batch_size sequences
        if self.config.use_dynamic_bsz:
            micro_batches, _ = rearrange_micro_batches(mini_batch, self.config.ppo_max_token_len_per_gpu)
        else:
            micro_batches = mini_batch.split(self.config.ppo_micro_batch_size_per_gpu)
        self.actor_optimizer.zero_grad()
        for data in micro_batches:
            log_prob = self.actor_module(data)
            loss = policy_loss(log_prob, data)  # mean over the sequences of this micro-batch
            accumulation = self.config.ppo_mini_batch_size // self.config.ppo_micro_batch_size_per_gpu
            loss = loss / accumulation  # BUG: dynamic micro-batches differ in number and size
            loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(self.actor_module.parameters(), self.config.grad_clip)
        self.actor_optimizer.step()
        return grad_norm
