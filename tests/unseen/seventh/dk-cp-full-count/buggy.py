"""Token counting for a run with context parallelism."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def global_token_count(micro_batches, dp_group, dp_cp_group):
    # every context-parallel rank loads the whole sequences, the cut comes in forward_step
    count = sum((mb["labels"] != -100).sum() for mb in micro_batches)
    count = torch.as_tensor(count, device="cuda")
    dist.all_reduce(count, group=dp_cp_group)  # BUG
    return count


def cut(t, cp_group):
    return t.chunk(dist.get_world_size(cp_group), dim=1)[dist.get_rank(cp_group)]


def forward_step(model, mb, cp_group, num_tokens):
    logits = model(cut(mb["input_ids"], cp_group), cut(mb["position_ids"], cp_group))
    labels = cut(mb["labels"], cp_group)
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum"
    )
    return loss / num_tokens


def train_step(model, micro_batches, groups, optimizer):
    num_tokens = global_token_count(micro_batches, groups.dp, groups.dp_cp)
    for mb in micro_batches:
        forward_step(model, mb, groups.cp, num_tokens).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=groups.dp_cp)
    optimizer.step()
    optimizer.zero_grad()
