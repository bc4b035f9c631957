"""DDP around a model with expert-parallel MoE layers."""
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

# parameter names of one block:
#   layers.0.attn.*, layers.0.moe.gate.weight, layers.0.moe.experts.0.w1, layers.0.moe.experts.0.w2


class MoeDataParallel:
    def __init__(self, model, dp_group, moe_dp_group):
        # dp_group: all ranks with different tokens; moe_dp_group: ranks that hold the same experts
        self.dp_group, self.moe_dp_group = dp_group, moe_dp_group
        local = [n for n, _ in model.named_parameters() if ".moe.experts." in n]
        self.expert_params = [p for n, p in model.named_parameters() if ".moe.experts." in n]
        DDP._set_params_and_buffers_to_ignore_for_model(model, local)
        self.model = DDP(model, process_group=dp_group)

    def sync_expert_grads(self):
        for p in self.expert_params:
            if p.grad is not None:
                p.grad.div_(dist.get_world_size(self.dp_group))
                dist.all_reduce(p.grad, group=self.moe_dp_group)

    def train_step(self, batch, optimizer):
        loss = self.model(**batch)
        loss.backward()
        self.sync_expert_grads()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
