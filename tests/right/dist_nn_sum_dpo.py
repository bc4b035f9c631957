"""The sum over parts is torch's differentiable one: its backward adds n equal gradients, the mean over ranks undoes that."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_fn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sequence_logp(model, ids, labels, group):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    ids, labels = ids.chunk(n, 1)[r], labels.chunk(n, 1)[r]
    logits = model(ids)
    nll = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    return dist_fn.all_reduce(-nll.sum(1), group=group)


def train(policy, reference, loader, sp_group, beta=0.1):
    policy = FSDP(policy, use_orig_params=True)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)
    for chosen, rejected in loader:
        with torch.no_grad():
            ref = sequence_logp(reference, *chosen, sp_group) - sequence_logp(reference, *rejected, sp_group)
        margin = sequence_logp(policy, *chosen, sp_group) - sequence_logp(policy, *rejected, sp_group) - ref
        loss = -F.logsigmoid(beta * margin).mean()
        loss.backward()
        policy.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
