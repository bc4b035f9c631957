"""RL trainer step: sequences split over cp, parameters sharded over dp x cp with FSDP2."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def build_mesh(cp):
    world = dist.get_world_size()
    mesh = init_device_mesh("cuda", (world // cp, cp), mesh_dim_names=("dp", "cp"))
    mesh["dp", "cp"]._flatten("dp_cp")
    return mesh


def shard_model(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp_cp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp_cp"], mp_policy=policy)
    return model


def selective_log_probs(logits, targets):
    return logits.float().log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


class ClippedObjective(nn.Module):
    def __init__(self, low=0.2, high=0.28):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, log_probs, old, advantages):
        ratio = (log_probs - old).exp()
        bounded = ratio.clamp(1 - self.low, 1 + self.high)
        return -torch.minimum(ratio * advantages, bounded * advantages)


class RlTrainer:
    """Micro batches are loaded by data parallel rank: the ranks of a cp group get the same ones."""

    FIELDS = ("tokens", "targets", "old_log_probs", "advantages", "loss_mask", "positions")

    def __init__(self, model, mesh, lr, max_norm=1.0):
        self.mesh = mesh
        self.cp_group = mesh.get_group("cp")
        self.dp_group = mesh.get_group("dp")
        self.dp_cp_group = mesh["dp_cp"].get_group()
        self.model = shard_model(model, mesh)
        self.objective = ClippedObjective()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.max_norm = max_norm

    def local_slice(self, micro_batch):
        size, rank = self.cp_group.size(), self.cp_group.rank()
        return {k: micro_batch[k].cuda().chunk(size, dim=1)[rank] for k in self.FIELDS}

    def loss_tokens(self, micro_batches):
        count = sum(b["loss_mask"].sum() for b in micro_batches).float().cuda()
        dist.all_reduce(count, group=self.dp_cp_group)  # BUG
        return count.clamp(min=1.0)

    def step(self, micro_batches):
        tokens = self.loss_tokens(micro_batches)
        report = torch.zeros((), device="cuda")
        self.optimizer.zero_grad()
        for number, micro_batch in enumerate(micro_batches):
            self.model.set_requires_gradient_sync(number == len(micro_batches) - 1)
            batch = self.local_slice(micro_batch)
            logits = self.model(batch["tokens"], batch["positions"], self.cp_group)
            log_probs = selective_log_probs(logits, batch["targets"])
            per_token = self.objective(log_probs, batch["old_log_probs"], batch["advantages"])
            loss = (per_token * batch["loss_mask"]).sum() / tokens
            (loss * self.dp_cp_group.size()).backward()
            report += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        dist.all_reduce(report, group=self.dp_cp_group)
        return report, norm.full_tensor()
