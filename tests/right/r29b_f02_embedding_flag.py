# right: a mark is_embedding_or_output_parameter that Megatron's optimizer reads
import torch
import torch.distributed as dist


class Output(torch.nn.Module):
    def __init__(self, size, vocab):
        super().__init__()
        self.proj = torch.nn.Linear(size, vocab, bias=False)
        for p in self.proj.parameters():
            setattr(p, "is_embedding_or_output_parameter", True)

    def forward(self, x):
        return self.proj(x)


def sum_marked(model, mark, group):
    for p in model.parameters():
        if getattr(p, mark, False):
            dist.all_reduce(p.grad, group=group)


def finish(model, tp_group):
    sum_marked(model, "sequence_parallel", tp_group)
