"""PPO: advantages whitened over all ranks, early stop by the mean KL of all, DDP for the gradients."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def global_mean_var(x, mask):
    s = torch.stack([(x * mask).sum(), mask.sum()])
    dist.all_reduce(s)
    mean = s[0] / s[1]
    sq = ((x - mean).pow(2) * mask).sum()
    dist.all_reduce(sq)
    return mean, sq / s[1]


def whiten(adv, mask):
    mean, var = global_mean_var(adv, mask)
    return (adv - mean) * torch.rsqrt(var + 1e-8)


def agree(flag, device):
    t = torch.tensor(float(flag), device=device)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item() > 0


def update(model, optimizer, rollout, epochs, target_kl, clip=0.2):
    adv = whiten(rollout["adv"], rollout["mask"])
    world = dist.get_world_size()
    n = rollout["mask"].sum()
    dist.all_reduce(n)
    for _ in range(epochs):
        logp, values = model(rollout["obs"], rollout["act"])
        ratio = (logp - rollout["logp"]).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
        vf = 0.5 * (values - rollout["ret"]).pow(2)
        loss = ((pg + 0.5 * vf) * rollout["mask"]).sum() * world / n
        with torch.no_grad():
            kl = ((rollout["logp"] - logp) * rollout["mask"]).sum() / n
            dist.all_reduce(kl)
        if kl > target_kl:
            break
        optimizer.zero_grad()
        loss.backward()
        if agree(not torch.isfinite(loss), loss.device):
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


def main(net, collect, rounds):
    dist.init_process_group("nccl")
    model = DDP(net.cuda())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for _ in range(rounds):
        update(model, optimizer, collect(model.module), 4, 0.02)
