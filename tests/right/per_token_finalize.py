"""Megatron's per-token loss: gradients are summed everywhere and divided by the number of tokens at the end."""
import torch
import torch.distributed as dist


def loss_func(mask, losses):
    losses = losses.float().view(-1)
    mask = mask.view(-1).float()
    total = torch.sum(losses * mask)
    tokens = mask.sum().to(torch.int)
    report = torch.cat([total.clone().detach().view(1), tokens.view(1).float()])
    return total, tokens, report


def scale_gradients(params, factor):
    for p in params:
        p.grad.mul_(factor)


def finalize(params, tokens, dp_cp_group):
    for p in params:
        dist.all_reduce(p.grad, group=dp_cp_group)
    dist.all_reduce(tokens, group=dp_cp_group)
    if tokens > 0:
        scale_gradients(params, 1.0 / tokens)


def train_step(model, micro_batches, optimizer, dp_cp_group):
    optimizer.zero_grad()
    total_tokens = torch.zeros((), dtype=torch.int, device="cuda")
    reports = []
    for b in micro_batches:
        losses = model(b["tokens"], b["position_ids"], labels=b["labels"])
        loss, tokens, report = loss_func(b["loss_mask"], losses)
        loss.backward()
        total_tokens += tokens
        reports.append(report)
    finalize(list(model.parameters()), total_tokens, dp_cp_group)
    optimizer.step()
    report = torch.vstack(reports).sum(dim=0)
    dist.all_reduce(report, group=dp_cp_group)
    return (report[0] / report[1]).item()
