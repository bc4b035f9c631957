# right: a mark that the wrapping policy of another file reads
import torch
import torch.distributed as dist


class Rope(torch.nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table
        for p in self.table.parameters():
            setattr(p, "keep_in_fp32", True)

    def forward(self, x, pos):
        return x * self.table(pos)


def sum_marked(model, mark, group):
    for p in model.parameters():
        if getattr(p, mark, False):
            dist.all_reduce(p.grad, group=group)


def finish(model, tp_group):
    sum_marked(model, "sequence_parallel", tp_group)
