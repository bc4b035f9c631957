"""The rank leaves in the last round, after the last collective."""
import torch
import torch.distributed as dist


def search(model, candidates, evaluate):
    rank = dist.get_rank()
    results = []
    for i, cand in enumerate(candidates):
        score = evaluate(model, cand)
        dist.all_reduce(score)
        results.append(score.item())
        last = i + 1 == len(candidates)
        if last and rank == 0:
            return candidates[max(range(len(results)), key=results.__getitem__)]
    return None
