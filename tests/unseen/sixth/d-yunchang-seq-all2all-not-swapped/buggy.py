"""All-to-all between the sequence and the head dimension."""
import torch
import torch.distributed as dist


def all_to_all(x, scatter_idx, gather_idx, group):
    world = dist.get_world_size(group)
    inputs = [t.contiguous() for t in torch.tensor_split(x, world, scatter_idx)]
    outputs = [torch.empty_like(inputs[0]) for _ in range(world)]
    dist.all_to_all(outputs, inputs, group=group)
    return torch.cat(outputs, dim=gather_idx).contiguous()


class SeqAllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input, scatter_idx, gather_idx):
        ctx.group = group
        ctx.scatter_idx = scatter_idx
        ctx.gather_idx = gather_idx
        return all_to_all(input, scatter_idx, gather_idx, group)

    @staticmethod
    def backward(ctx, *grad_output):
        return (
            None,
            all_to_all(*grad_output, ctx.scatter_idx, ctx.gather_idx, ctx.group),  # BUG: not the inverse
            None,
            None,
        )


def ulysses_attention(q, k, v, attn, group):
    # q, k, v: [b, s/sp, heads, d]
    q, k, v = (SeqAllToAll.apply(group, t, 2, 1) for t in (q, k, v))
    return SeqAllToAll.apply(group, attn(q, k, v), 1, 2)
