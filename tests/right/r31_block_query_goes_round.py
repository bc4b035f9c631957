# the queries of all ranks meet the keys and values of this one: what is own in every round is meant so
import torch
import torch.distributed as dist


def block_out(query, key, value):
    scores = query @ key.transpose(-1, -2)
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    return torch.exp(scores - lse) @ value, lse


def attend(query, key, value, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    queries = [torch.empty_like(query) for _ in range(size)]
    dist.all_gather(queries, query.contiguous(), group=group)
    outs, lses = [None] * size, [None] * size
    for i in range(size):
        source = (rank + i) % size
        next_query = queries[source]
        outs[source], lses[source] = block_out(next_query, key, value)
    out, lse = torch.stack(outs), torch.stack(lses)
    whole = lse.exp().contiguous()
    dist.all_reduce(whole, group=group)
    parts = (out * lse.exp() / whole).contiguous()
    own = torch.empty_like(query)
    dist.reduce_scatter_tensor(own, parts.flatten(0, 1), group=group)
    return own
