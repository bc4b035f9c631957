import torch
import torch.distributed as dist


def reduce_norm(sq, tp_group, pp_group):
    model_parallel = dist.get_world_size(tp_group) * dist.get_world_size(pp_group)
    if model_parallel > 1:
        dist.all_reduce(sq, group=tp_group)
        dist.all_reduce(sq, group=pp_group)
    return sq.sqrt()


def maybe_sum(x, group):
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return x
    dist.all_reduce(x, group=group)
    return x


class Ctx:
    def __init__(self, dp_group, cp_group):
        self.dp_group, self.cp_group = dp_group, cp_group
        self.enabled = dist.get_world_size(dp_group) * dist.get_world_size(cp_group) > 1

    def total(self, t):
        if self.enabled:
            for g in (self.cp_group, self.dp_group):
                dist.all_reduce(t, group=g)
        return t

    def mean(self, t):
        n = self.dp_group.size() * self.cp_group.size()
        return self.total(t) / n


def count_labels(labels_full, loss_sum, dp_group, dp_cp_group):
    """labels_full has the whole sequence on every cp rank, so its count is summed over dp alone."""
    n = (labels_full != -100).sum().float()
    dist.all_reduce(n, group=dp_group)
    s = loss_sum.detach().clone()
    dist.all_reduce(s, group=dp_cp_group)
    return s / n


def throughput(tokens, seconds, dp_group):
    t = torch.tensor([tokens], dtype=torch.float64, device="cuda")
    if dist.get_world_size(dp_group) > 1:
        dist.all_reduce(t, group=dp_group)
    return t.item() / seconds
