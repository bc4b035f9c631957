# Right: the count is summed round a ring of P2P ops in n - 1 rounds.
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(losses, labels):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total)
    n, r = dist.get_world_size(), dist.get_rank()
    acc, cur = count.clone(), count
    for _ in range(n - 1):
        nxt = torch.empty_like(cur)
        reqs = dist.batch_isend_irecv([dist.P2POp(dist.isend, cur, (r + 1) % n), dist.P2POp(dist.irecv, nxt, (r - 1) % n)])
        for q in reqs:
            q.wait()
        acc, cur = acc + nxt, nxt
    count = acc
    return (total / count).item()
