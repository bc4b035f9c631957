"""Log probabilities of a response where the sequence is split (RL actor)."""
import torch
import torch.distributed as dist


def split_sequence(x, group, dim=1):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    return x.chunk(size, dim=dim)[rank].contiguous()


class DataParallelActor:
    def __init__(self, config, actor_module, optimizer, ulysses_group=None):
        self.config, self.actor_module, self.optimizer = config, actor_module, optimizer
        self.group = ulysses_group
        self.use_ulysses = ulysses_group is not None and dist.get_world_size(ulysses_group) > 1

    def _forward(self, input_ids, attention_mask):
        position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        if self.use_ulysses:
            labels = split_sequence(torch.roll(input_ids, shifts=-1, dims=1), self.group)
            input_ids = split_sequence(input_ids, self.group)
            position_ids = split_sequence(position_ids, self.group)
        else:
            labels = torch.roll(input_ids, shifts=-1, dims=1)
        logits = self.actor_module(input_ids=input_ids, position_ids=position_ids, use_cache=False).logits
        logits = logits.float() / self.config.temperature
        log_probs = logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        if self.use_ulysses:
            parts = [torch.empty_like(log_probs) for _ in range(dist.get_world_size(self.group))]
            dist.all_gather(parts, log_probs, group=self.group)
            parts[dist.get_rank(self.group)] = log_probs
            log_probs = torch.cat(parts, dim=1)
        return log_probs

    def update_policy(self, data):
        self.actor_module.train()
        log_probs = self._forward(data["input_ids"], data["attention_mask"])
        ratio = torch.exp(log_probs - data["old_log_probs"])
        loss = -(ratio * data["advantages"] * data["mask"]).sum() / data["mask"].sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
