"""DPO under context parallelism: log-probabilities of sequences are sums of parts, with a sum whose backward is identity."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class SumParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def sequence_logp(model, ids, labels, mask, cp_group):
    logits = model(ids)
    logp = logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    return SumParts.apply((logp * mask).sum(1), cp_group)


def dpo_loss(policy, reference, batch, cp_group, beta=0.1):
    chosen = sequence_logp(policy, batch["chosen"], batch["chosen_labels"], batch["chosen_mask"], cp_group)
    rejected = sequence_logp(policy, batch["rejected"], batch["rejected_labels"], batch["rejected_mask"], cp_group)
    with torch.no_grad():
        ref_c = sequence_logp(reference, batch["chosen"], batch["chosen_labels"], batch["chosen_mask"], cp_group)
        ref_r = sequence_logp(reference, batch["rejected"], batch["rejected_labels"], batch["rejected_mask"], cp_group)
    margin = (chosen - ref_c) - (rejected - ref_r)
    return -F.logsigmoid(beta * margin).mean(), (margin > 0).float().mean()


def train(policy, reference, loader, optimizer, dp_group, cp_group):
    for batch in loader:
        loss, accuracy = dpo_loss(policy, reference, batch, cp_group)
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad, group=cp_group)
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
        optimizer.step()
        optimizer.zero_grad()
        stats = torch.stack([loss.detach(), accuracy])
        # ranks of cp have the same values
        dist.all_reduce(stats, op=dist.ReduceOp.AVG, group=dp_group)
        print(stats.tolist())
