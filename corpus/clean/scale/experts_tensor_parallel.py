"""Experts split over expert-parallel and tensor-parallel ranks: an average over the ranks with the same part lacks the others."""

import torch
import torch.distributed as dist


class Synchronizer:
    def __init__(self, model, dp_group, expert_dp_group, etp_group):
        self.dp_group, self.expert_dp_group, self.etp_group = dp_group, expert_dp_group, etp_group
        self.dense = [p for n, p in model.named_parameters() if ".experts." not in n]
        self.experts = [p for n, p in model.named_parameters() if ".experts." in n]

    def sync(self):
        dp, edp = self.dp_group.size(), self.expert_dp_group.size()
        for param in self.dense:
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
        for param in self.experts:
            dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=self.expert_dp_group)
            param.grad.mul_(edp / dp)


def train(model, batches, optimizer, groups):
    sync = Synchronizer(model, groups.dp_group, groups.expert_dp_group, groups.etp_group)
    for tokens, labels in batches:
        loss = torch.nn.functional.cross_entropy(model(tokens), labels)
        loss.backward()
        sync.sync()
        optimizer.step()
        optimizer.zero_grad()
