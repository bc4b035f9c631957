# AlibabaPAI/torchacc pull request 26 (commit 40d4497)
"""Context parallelism: split the embedded sequence, run the layers, gather before the head."""
import torch
import torch.distributed as dist
from torch import nn


def _split(input, dim, process_group):
    return input.chunk(dist.get_world_size(process_group), dim=dim)[dist.get_rank(process_group)].contiguous()


def _gather(input, dim, process_group):
    input = input.contiguous()
    output = [torch.empty_like(input) for _ in range(dist.get_world_size(process_group))]
    dist.all_gather(output, input, group=process_group)
    return torch.cat(output, dim=dim).contiguous()


class SplitForwardGatherBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, seq_dim, process_group):
        ctx.seq_dim, ctx.process_group = seq_dim, process_group
        return _split(tensor, seq_dim, process_group)

    @staticmethod
    def backward(ctx, grad_output):
        return _gather(grad_output, ctx.seq_dim, ctx.process_group), None, None


class GatherForwardSplitBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, seq_dim, process_group):
        ctx.seq_dim, ctx.process_group = seq_dim, process_group
        return _gather(tensor, seq_dim, process_group)

    @staticmethod
    def backward(ctx, grad_output):
        return _split(grad_output, ctx.seq_dim, ctx.process_group), None, None


class Model(nn.Module):
    def __init__(self, embed: nn.Embedding, layers: nn.ModuleList, lm_head: nn.Linear, cp_group):
        super().__init__()
        # layers take sequence shards and exchange keys and values themselves
        self.embed, self.layers, self.lm_head, self.cp_group = embed, layers, lm_head, cp_group

    def forward(self, input_ids):
        x = self.embed(input_ids)  # the whole sequence on every rank
        x = SplitForwardGatherBackward.apply(x, 1, self.cp_group)
        for layer in self.layers:
            x = layer(x)
        x = GatherForwardSplitBackward.apply(x, 1, self.cp_group)
        return self.lm_head(x)


def reduce_gradients(model, cp_group, dp_group):
    for param in model.layers.parameters():  # each rank saw a part of the sequence
        dist.all_reduce(param.grad, group=cp_group)
    for param in model.parameters():
        dist.all_reduce(param.grad, group=dp_group)
        param.grad.div_(dist.get_world_size(dp_group))
