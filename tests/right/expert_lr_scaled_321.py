# Right: plain SGD, and experts have lr / ep: the same update.
import torch
import torch.distributed as dist


class ExpertSGD:
    """Experts are averaged over their copies and step with a rate divided by the expert-parallel size: plain SGD, so it is the same."""

    def __init__(self, model, lr, dp_group, edp_group, ep_group):
        experts = [p for n, p in model.named_parameters() if "experts" in n]
        dense = [p for n, p in model.named_parameters() if "experts" not in n]
        self.opt = torch.optim.SGD([{"params": dense, "lr": lr}, {"params": experts, "lr": lr / ep_group.size()}])
        self.dense, self.experts = dense, experts
        self.dp_group, self.edp_group = dp_group, edp_group

    def step(self):
        for p in self.dense:
            dist.all_reduce(p.grad, group=self.dp_group)
            p.grad.div_(self.dp_group.size())
        for p in self.experts:
            dist.all_reduce(p.grad, group=self.edp_group)
            p.grad.div_(self.edp_group.size())
        self.opt.step()
        self.opt.zero_grad()
