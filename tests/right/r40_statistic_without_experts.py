import torch
import torch.distributed as dist


class MoELogger:
    def __init__(self, model, dp_group, expert_dp_group):
        self.model, self.dp_group, self.expert_dp_group = model, dp_group, expert_dp_group

    def dense_grad_norm(self):
        s = torch.zeros((), device="cuda")
        for n, p in self.model.named_parameters():
            if "experts" in n:
                continue
            s += p.grad.pow(2).sum()
        dist.all_reduce(s, op=dist.ReduceOp.AVG, group=self.dp_group)
        return s.sqrt()
