"""Scaling of expert gradients when the dense path is tensor parallel.
NVIDIA-NeMo/Automodel #2995, "EP/TP gradient correctness for routed experts".
"""
import torch
import torch.distributed.nn.functional as dist_fn
from torch.distributed.fsdp import fully_shard


class MoE(torch.nn.Module):
    def __init__(self, gate, experts, ep_group):
        super().__init__()
        self.gate, self.experts, self.ep_group = gate, experts, ep_group

    def forward(self, x):
        probs = self.gate(x)
        tokens = torch.cat(dist_fn.all_gather(x, group=self.ep_group))
        weights = torch.cat(dist_fn.all_gather(probs, group=self.ep_group))
        partial = self.experts(tokens, weights)  # the experts of this EP rank only
        parts = [p.contiguous() for p in partial.chunk(self.ep_group.size())]
        return dist_fn.reduce_scatter(torch.empty_like(parts[0]), parts, group=self.ep_group)


def shard(model, device_mesh, moe_mesh):
    """device_mesh: (dp, tp); moe_mesh: (ep_shard, ep) over the same ranks, dp * tp == ep_shard * ep.

    The token path is replicated over tp, there is no sequence parallelism.
    """
    for block in model.layers:
        fully_shard(block.moe.experts, mesh=moe_mesh["ep_shard"])
        fully_shard(block, mesh=device_mesh["dp"])


@torch.no_grad()
def scale_expert_grads(model, device_mesh, moe_mesh):
    """Dense gradients are means over dp; give the expert gradients the same scale."""
    ep_ratio = device_mesh["dp"].size() / moe_mesh["ep_shard"].size()  # BUG
    for block in model.layers:
        for p in block.moe.experts.parameters():
            if p.grad is not None:
                p.grad.div_(ep_ratio)


def train_step(model, batches, loss_fn, optimizer, device_mesh, moe_mesh):
    for batch in batches:
        (loss_fn(model(batch["input_ids"]), batch["labels"]) / len(batches)).backward()
    scale_expert_grads(model, device_mesh, moe_mesh)
    optimizer.step()
    optimizer.zero_grad()
