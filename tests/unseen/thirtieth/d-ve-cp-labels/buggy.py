"""Preparing padded batches for context-parallel actor updates."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def split_for_cp(x, cp_rank, cp_size, dim=1):
    """Two chunks per rank, one from either end, so that causal attention is balanced."""
    if cp_size == 1:
        return x
    chunks = x.chunk(2 * cp_size, dim=dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - cp_rank - 1]], dim=dim)


def preprocess_batch(input_ids, attention_mask, loss_mask, cp_group):
    cp_rank, cp_size = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    align = 2 * cp_size
    pad = (-input_ids.size(1)) % align
    if pad:
        input_ids = F.pad(input_ids, (0, pad), value=0)
        attention_mask = F.pad(attention_mask, (0, pad), value=0)
        loss_mask = F.pad(loss_mask, (0, pad), value=0)
    position_ids = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids)

    input_ids = split_for_cp(input_ids, cp_rank, cp_size)
    loss_mask = split_for_cp(loss_mask, cp_rank, cp_size)
    labels = torch.roll(input_ids, shifts=-1, dims=1)  # BUG
    label_mask = torch.roll(loss_mask, shifts=-1, dims=1)  # BUG
    label_mask[:, -1] = 0
    return {
        "input_ids": input_ids,
        "position_ids": split_for_cp(position_ids, cp_rank, cp_size),
        "attention_mask": split_for_cp(attention_mask, cp_rank, cp_size),
        "labels": labels,
        "label_mask": label_mask,
    }


def token_logprobs(logits, labels):
    return -F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none").view_as(labels)


class MegatronPPOActor:
    def __init__(self, actor_module, optimizer, cp_group, dp_cp_group, clip_ratio=0.2):
        """actor_module attends over the whole sequence of its context-parallel group."""
        self.actor_module = actor_module
        self.optimizer = optimizer
        self.cp_group = cp_group
        self.dp_cp_group = dp_cp_group
        self.clip_ratio = clip_ratio

    def _split_rollout(self, x, seq_len):
        x = F.pad(x, (0, seq_len - x.size(1)))
        return split_for_cp(x, dist.get_rank(self.cp_group), dist.get_world_size(self.cp_group))

    def update_policy(self, data):
        batch = preprocess_batch(
            data["input_ids"], data["attention_mask"], data["response_mask"], self.cp_group
        )
        seq_len = batch["input_ids"].size(1) * dist.get_world_size(self.cp_group)
        old_log_prob = self._split_rollout(data["old_log_probs"], seq_len)
        advantages = self._split_rollout(data["advantages"], seq_len)

        logits = self.actor_module(
            batch["input_ids"], batch["position_ids"], batch["attention_mask"]
        )
        log_prob = token_logprobs(logits, batch["labels"])
        ratio = torch.exp(log_prob - old_log_prob)
        pg = torch.max(-advantages * ratio,
                       -advantages * ratio.clamp(1 - self.clip_ratio, 1 + self.clip_ratio))

        n_tokens = batch["label_mask"].sum().float()
        dist.all_reduce(n_tokens, group=self.dp_cp_group)
        loss = (pg * batch["label_mask"]).sum() / n_tokens
        loss.backward()
        for p in self.actor_module.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=self.dp_cp_group)
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss = loss.detach()
        dist.all_reduce(loss, group=self.dp_cp_group)
        return loss
