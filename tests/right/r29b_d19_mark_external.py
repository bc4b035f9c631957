# right: the mark is one that Megatron itself reads (shared embedding)
import torch
import torch.distributed as dist


class Stage(torch.nn.Module):
    def __init__(self, embedding, layers):
        super().__init__()
        self.embedding, self.layers = embedding, layers
        self.embedding.weight.shared_embedding = True
        for p in self.layers.parameters():
            setattr(p, "allreduce", True)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return x


def sum_marked(model, mark, group):
    for p in model.parameters():
        if getattr(p, mark, False):
            dist.all_reduce(p.grad, group=group)


def finish(model, tp_group):
    sum_marked(model, "sequence_parallel", tp_group)
