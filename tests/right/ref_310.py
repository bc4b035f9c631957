"""GRPO: the reference log-probs by the helper under no_grad; the policy's by the module itself."""
import torch
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def logits_of(hidden_states, lm_weight):
    # hidden_states: this data-parallel rank's tokens
    if isinstance(lm_weight, DTensor):
        lm_weight = lm_weight.full_tensor()
    return F.linear(hidden_states, lm_weight)


@torch.no_grad()
def reference_logps(reference, ids):
    logits = logits_of(reference.body(ids), reference.head.weight)
    return logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


def train(policy, reference, loader, lr, beta):
    fully_shard(policy)
    fully_shard(reference)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lr)
    for ids, advantage in loader:
        ref = reference_logps(reference, ids)
        logps = policy(ids)[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        kl = (ref - logps).exp() - (ref - logps) - 1
        loss = (-(logps - logps.detach()).exp() * advantage[:, None] + beta * kl).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
