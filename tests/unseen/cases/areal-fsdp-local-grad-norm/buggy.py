"""Clip the gradients of an FSDP2 model."""
# inclusionAI/AReaL issue 312: the norm is that of the local shards, and so is the factor.
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def get_local_grads(parameters):
    grads = []
    for p in parameters:
        if p.grad is None:
            continue
        grads.append(p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad)
    return grads


def fsdp2_clip_grad_norm(parameters, max_norm, group):
    grads = get_local_grads(parameters)
    device = grads[0].device
    total = torch.zeros((), dtype=torch.float32, device=device)
    for g in grads:
        total += g.detach().float().pow(2).sum()
    total_norm = total.sqrt()  # BUG: of this rank's shards only
    clip_coef = max_norm / (total_norm + 1e-6)
    clip_coef = torch.clamp(clip_coef, max=1.0)
    for g in grads:
        g.mul_(clip_coef)
    return total_norm


class FSDPEngine:
    def __init__(self, model, lr, max_grad_norm):
        self.mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
        for block in model.layers:
            fully_shard(block, mesh=self.mesh)
        self.model = fully_shard(model, mesh=self.mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.max_grad_norm = max_grad_norm

    def train_batch(self, micro_batches, loss_fn):
        self.optimizer.zero_grad()
        for mb in micro_batches:
            loss = loss_fn(self.model(mb["input_ids"]), mb) / len(micro_batches)
            loss.backward()
        grad_norm = fsdp2_clip_grad_norm(
            list(self.model.parameters()), self.max_grad_norm, self.mesh.get_group("dp")
        )
        self.optimizer.step()
        return {"grad_norm": grad_norm.item()}
