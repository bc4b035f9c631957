"""GRPO's mean over tokens of a sequence, then over sequences, with sequences cut over cp: lengths are summed first."""
import torch
import torch.distributed as dist


def sequence_mean_loss(logp, old, adv, mask, cp_group):
    # all of them: [b, s/cp]; a sequence's parts are on the ranks of cp
    lengths = mask.sum(1)
    dist.all_reduce(lengths, group=cp_group)
    ratio = (logp - old).exp()
    obj = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
    return -((obj * mask).sum(1) / lengths.clamp(min=1)).mean()


def train(policy, rollouts, optimizer, dp_group, cp_group):
    for r in rollouts:
        loss = sequence_mean_loss(policy(r["ids"]), r["old"], r["adv"], r["mask"], cp_group)
        loss.backward()
        for p in policy.parameters():
            # parts of one sequence add up, sequences of data-parallel ranks are averaged
            dist.all_reduce(p.grad, group=cp_group)
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
        optimizer.step()
        optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown, group=cp_group)
        dist.all_reduce(shown, op=dist.ReduceOp.AVG, group=dp_group)
        if dist.get_rank() == 0:
            print(shown.item())
