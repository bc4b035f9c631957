"""One expert on each rank, everything else replicated."""
import torch
import torch.distributed as dist


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return _AllToAll.apply(grad, ctx.group), None


class MOELayer(torch.nn.Module):
    def __init__(self, gate, expert, group):
        super().__init__()
        self.gate, self.expert, self.group = gate, expert, group
        for p in self.expert.parameters():
            p.expert = True

    def forward(self, x):
        # combine, dispatch: [tokens, world, capacity]
        combine, dispatch = self.gate(x)
        sent = torch.einsum("sec,sm->ecm", dispatch.to(x.dtype), x)
        received = _AllToAll.apply(sent, self.group)
        returned = _AllToAll.apply(self.expert(received), self.group)
        return torch.einsum("sec,ecm->sm", combine, returned)


class LegacyDistributedDataParallel(torch.nn.Module):
    def __init__(self, module, process_group):
        super().__init__()
        self.module, self.process_group = module, process_group

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def all_reduce_grads(self):
        world_size = dist.get_world_size(self.process_group)
        for p in self.module.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.div_(world_size)
            dist.all_reduce(p.grad, group=self.process_group)  # BUG: every rank holds another expert
