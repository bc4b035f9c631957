"""Accuracy metrics of a multi-step draft head, reduced over the ranks by the trainer."""
import torch
import torch.distributed as dist


def single_step_accuracy(logits, targets, loss_mask, prev_correct):
    correct = (logits.argmax(dim=-1) == targets) & loss_mask
    cond_mask = loss_mask if prev_correct is None else loss_mask & prev_correct
    correct = correct if prev_correct is None else correct & prev_correct
    correct_sum = correct.sum().float()
    full_total = loss_mask.sum().float()
    cond_total = cond_mask.sum().float()
    return correct, (correct_sum, full_total, correct_sum, cond_total)  # BUG


def build_metrics(step_logits, step_targets, loss_mask):
    metrics, prev_correct = {}, None
    for i, (logits, targets) in enumerate(zip(step_logits, step_targets)):
        prev_correct, values = single_step_accuracy(logits, targets, loss_mask, prev_correct)
        names = (f"full_acc_{i}_sum", f"full_acc_{i}_total", f"cond_acc_{i}_sum", f"cond_acc_{i}_total")
        metrics.update(zip(names, values))
    return metrics


def normalize(metrics):
    out = {}
    for key, value in metrics.items():
        if key.endswith("_sum"):
            name = key[: -len("_sum")]
            out[name] = (value / metrics[name + "_total"].clamp(min=1)).item()
    return out


@torch.no_grad()
def log_step(step_logits, step_targets, loss_mask, logger, step):
    metrics = build_metrics(step_logits, step_targets, loss_mask)
    for v in metrics.values():
        dist.all_reduce(v, op=dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        logger.log(normalize(metrics), step=step)
