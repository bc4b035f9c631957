"""Expert-parallel layer: send tokens to the ranks of their experts and back (top-1).

Source: token dispatchers as in torchtitan (from memory). The tokens go out by the plain
all_to_all_single, which autograd does not follow, so what is before the layer gets no gradient
through the experts. The way back is differentiable.
"""
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd


def exchange_counts(counts, group):
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts, group=group)
    return received


class ExpertParallelMoE(torch.nn.Module):
    def __init__(self, hidden, num_experts, make_expert, group):
        super().__init__()
        self.group, self.world = group, dist.get_world_size(group)
        self.gate = torch.nn.Linear(hidden, num_experts, bias=False)
        self.local = num_experts // self.world
        self.experts = torch.nn.ModuleList(make_expert() for _ in range(self.local))

    def forward(self, x):
        # x: [tokens, hidden]
        score, expert = torch.softmax(self.gate(x), dim=-1).max(dim=-1)
        order = torch.argsort(expert, stable=True)
        counts = torch.bincount(expert, minlength=self.local * self.world)
        received = exchange_counts(counts, self.group).view(self.world, self.local)
        send = counts.view(self.world, self.local).sum(dim=1).tolist()
        recv = received.sum(dim=1).tolist()

        tokens = all_to_all_single_autograd(x[order], recv, send, self.group)
        pieces = tokens.split(received.flatten().tolist())
        outputs = [self.experts[i % self.local](piece) for i, piece in enumerate(pieces)]
        combined = all_to_all_single_autograd(torch.cat(outputs), send, recv, self.group)

        y = torch.zeros_like(x).index_copy(0, order, combined)
        return y * score.unsqueeze(-1)


class Block(torch.nn.Module):
    def __init__(self, hidden, mixer, moe):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.mixer, self.moe = mixer, moe

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.moe(self.norm2(x).flatten(0, 1)).view_as(x)
