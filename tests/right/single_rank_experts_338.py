"""the group of copies has one rank, which is asserted: each expert lies on one rank."""
import torch.distributed as dist


class Reducer:
    def __init__(self, module, dp_group, expert_dp_group):
        self.module = module
        self.dp_group = dp_group
        self.expert_dp_group = expert_dp_group
        assert dist.get_world_size(expert_dp_group) == 1

    def reduce_gradients(self):
        for p in self.module.parameters():
            if getattr(p, "is_expert", False):
                continue
            dist.all_reduce(p.grad, group=self.dp_group)
