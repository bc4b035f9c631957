import torch
import torch.distributed as dist
import torch.nn.functional as F


class Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, labels, start, group):
        lse = torch.empty(hidden.size(0), device=hidden.device)
        picked = torch.zeros_like(lse)
        for i in range(0, hidden.size(0), 128):
            logits = F.linear(hidden[i : i + 128], weight).float()
            top = logits.max(dim=-1).values
            dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
            total = torch.exp(logits - top.unsqueeze(-1)).sum(-1)
            dist.all_reduce(total, group=group)
            lse[i : i + 128] = total.log() + top
        ctx.save_for_backward(hidden, weight, lse)
        ctx.group = group
        return lse

    @staticmethod
    def backward(ctx, grad):
        x, w, lse = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_w = torch.zeros_like(w)
        for i in range(0, x.size(0), 128):
            p = (torch.matmul(x[i : i + 128], w.t()) - lse[i : i + 128, None]).exp()
            grad_x[i : i + 128] = torch.matmul(p, w)
            grad_w += p.t() @ x[i : i + 128]
        dist.all_reduce(grad_x, group=ctx.group)
        return grad_x, grad_w, None, None, None


def loss(hidden, weight, labels, start, group):
    hidden = hidden.reshape(-1, hidden.size(-1))
    return Chunked.apply(hidden, weight, labels, start, group).mean()
