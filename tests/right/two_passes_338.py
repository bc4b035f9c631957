"""the kinds are passed over one after the other, by a method with the group as an argument."""
import torch.distributed as dist


class Reducer:
    def __init__(self, module, dp_group, expert_dp_group):
        self.module = module
        self.groups = {False: dp_group, True: expert_dp_group}
        self.expert_dp_group = expert_dp_group

    def reduce_kind(self, expert):
        for p in self.module.parameters():
            if getattr(p, "is_expert", False) != expert:
                continue
            dist.all_reduce(p.grad, group=self.groups[expert])

    def reduce_gradients(self):
        self.reduce_kind(False)
        self.reduce_kind(True)
