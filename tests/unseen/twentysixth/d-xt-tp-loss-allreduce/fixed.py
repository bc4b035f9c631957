# xtuner 6b05b8645 (#1004)
"""Loss of a DTensor tensor-parallel model whose final hidden states are split over the sequence."""
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial


class PatchedCausalLM(torch.nn.Module):
    def __init__(self, trunk, lm_head_weight: DTensor, tp_mesh):
        super().__init__()
        self.trunk, self.tp_mesh = trunk, tp_mesh
        self.lm_head_weight = torch.nn.Parameter(lm_head_weight)  # Replicate on tp

    def forward(self, input_ids, labels):
        # hidden: DTensor, Shard(1) on tp; labels: this tp rank's part of the sequence
        hidden = self.trunk(input_ids).to_local()
        weight = self.lm_head_weight.to_local(grad_placements=(Partial(),))
        logits = F.linear(hidden, weight).float()
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        if self.tp_mesh.size() > 1:
            loss = DTensor.from_local(loss, self.tp_mesh, placements=(Partial(),)).full_tensor()
        return loss


def train_step(model, batch, dp_mesh, optimizer):
    # the model is also fully_shard-ed over dp_mesh, which averages gradients
    num_tokens = (batch["labels"] != -100).sum()
    dist.all_reduce(num_tokens, group=dp_mesh.get_group())
    dist.all_reduce(num_tokens, group=model.tp_mesh.get_group())
    loss = model(batch["input_ids"], batch["labels"]) / num_tokens * dp_mesh.size()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
