"""Accuracy and perplexity from logits that are split over the vocabulary: maxima and sums over the tensor group, then over data ranks."""

import torch
import torch.distributed as dist
from internlm.core.context import ParallelMode
from internlm.core.context import global_context as gpc


class AccPerplex:
    def __init__(self, device, tp_pg, dp_pg):
        self.tp_pg, self.dp_pg = tp_pg, dp_pg
        self.right = torch.zeros(1, device=device)
        self.total = torch.zeros(1, device=device)
        self.total_log_probs = torch.zeros(1, device=device)
        self.local_rank = dist.get_rank(tp_pg)

    def set_current_type_ids(self, type_ids):
        self.type_ids = type_ids

    def update(self, logits, labels):
        with torch.no_grad():
            logits = logits.detach().clone().float().view(-1, logits.size(-1))
            labels = labels.detach().clone().view(-1)
            shift = self.local_rank * logits.size(-1)
            values, indices = torch.max(logits, dim=-1)
            indices = indices + shift
            # The rank with the largest logit decides which token was predicted.
            best = values.clone()
            dist.all_reduce(best, op=dist.ReduceOp.MAX, group=self.tp_pg)
            hits = ((values == best) & (indices == labels)).long()
            dist.all_reduce(hits, op=dist.ReduceOp.MAX, group=self.tp_pg)
            mask = labels.ne(-100)
            self.right += (hits.bool() & mask).sum()
            self.total += mask.sum()

            shifted = logits - best.unsqueeze(-1)
            inside = mask & (labels >= shift) & (labels < shift + logits.size(-1))
            local = (labels - shift).clamp(0, logits.size(-1) - 1)
            picked = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1) * inside
            sums = shifted.exp().sum(-1)
            dist.all_reduce(picked, group=self.tp_pg)
            dist.all_reduce(sums, group=self.tp_pg)
            self.total_log_probs += ((sums.log() - picked) * mask).sum()

    def get_metric(self):
        for value in (self.right, self.total, self.total_log_probs):
            dist.all_reduce(value, op=dist.ReduceOp.SUM, group=self.dp_pg)
        loss = self.total_log_probs / self.total
        return {"acc": (self.right / self.total).item(), "perplexity": loss.exp().item()}


def record_loss(loss):
    shown = loss.detach().clone()
    dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=gpc.get_group(ParallelMode.DATA))
    return shown.item() if gpc.is_rank_for_log() else None
