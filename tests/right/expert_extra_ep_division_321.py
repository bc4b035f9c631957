# Right: average() divides experts by edp, correct_experts() by ep, both called in __call__: dp = edp * ep in all.
import torch
import torch.distributed as dist


class ExpertAware:
    def __init__(self, model, dp_group, edp_group, ep_size):
        self.model, self.dp_group, self.edp_group, self.ep_size = model, dp_group, edp_group, ep_size

    def average(self):
        for name, p in self.model.named_parameters():
            if p.grad is None:
                continue
            if "experts" in name:
                dist.all_reduce(p.grad, group=self.edp_group)
                p.grad.div_(self.edp_group.size())
            else:
                dist.all_reduce(p.grad, group=self.dp_group)
                p.grad.div_(self.dp_group.size())

    def correct_experts(self):
        # the dispatch brought the tokens of ep_size ranks to each expert
        for name, p in self.model.named_parameters():
            if "experts" in name and p.grad is not None:
                p.grad.div_(self.ep_size)

    def __call__(self):
        self.average()
        self.correct_experts()
