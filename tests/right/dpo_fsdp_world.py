"""DPO with Ulysses: the loss is equal on the ranks of sp; FSDP averages over all ranks, so it is multiplied by sp."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard


class SumParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class DPO:
    def __init__(self, policy, reference, sp_group, beta=0.1):
        self.policy, self.reference = fully_shard(policy), fully_shard(reference)
        self.group, self.beta = sp_group, beta
        self.n, self.r = dist.get_world_size(sp_group), dist.get_rank(sp_group)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=5e-7)

    def logp(self, model, ids, labels):
        ids, labels = ids.chunk(self.n, 1)[self.r], labels.chunk(self.n, 1)[self.r]
        logits = model(ids, self.group)
        nll = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
        return SumParts.apply(-nll.sum(1), self.group)

    def step(self, chosen, rejected):
        with torch.no_grad():
            ref = self.logp(self.reference, *chosen) - self.logp(self.reference, *rejected)
        margin = self.logp(self.policy, *chosen) - self.logp(self.policy, *rejected) - ref
        loss = -F.logsigmoid(self.beta * margin).mean()
        # each rank differentiates its own part of the log-probabilities
        (loss * self.n).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG)
        return shown.item()
