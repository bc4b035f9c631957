# thread: https://github.com/NVIDIA-NeMo/RL/pull/3788
"""Gradient norm and clipping for models sharded with DTensor."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def to_local_if_dtensor(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def split_over_tp(param):
    if not isinstance(param, DTensor):
        return False
    names = param.device_mesh.mesh_dim_names or ()
    if "tp" not in names:
        return False
    return param.placements[names.index("tp")].is_shard()


@torch.no_grad()
def get_grad_norm(parameters, dp_cp_group, tp_group):
    """Parameters are all sharded over dp_cp by fully_shard; tp follows the plan."""
    params = [p for p in parameters if p.grad is not None]
    device = torch.cuda.current_device()
    split_sq = torch.zeros((), dtype=torch.float32, device=device)
    whole_sq = torch.zeros((), dtype=torch.float32, device=device)
    for p in params:
        grad = to_local_if_dtensor(p.grad)
        sq = torch.linalg.vector_norm(grad, dtype=torch.float32).square()
        if split_over_tp(p):
            split_sq += sq
        else:
            whole_sq += sq
    total_sq = split_sq + whole_sq
    dist.all_reduce(total_sq, group=tp_group)  # BUG
    dist.all_reduce(total_sq, group=dp_cp_group)
    return total_sq.sqrt().item()


@torch.no_grad()
def clip_grad_by_total_norm_(parameters, max_grad_norm, total_norm):
    coeff = max_grad_norm / (total_norm + 1e-6)
    if coeff < 1.0:
        for p in parameters:
            if p.grad is not None:
                to_local_if_dtensor(p.grad).mul_(coeff)


class PolicyWorker:
    def __init__(self, model, optimizer, cfg, device_mesh):
        self.model, self.optimizer, self.cfg = model, optimizer, cfg
        self.dp_cp_group = device_mesh["dp_cp"].get_group()
        self.tp_group = device_mesh["tp"].get_group()

    def train(self, microbatches, loss_fn, global_valid_tokens):
        self.optimizer.zero_grad()
        dp_cp_size = dist.get_world_size(self.dp_cp_group)
        for mb in microbatches:
            logits = self.model(mb["input_ids"], position_ids=mb["position_ids"])
            loss = loss_fn(logits, mb).sum() / global_valid_tokens
            (loss * dp_cp_size).backward()
        grad_norm = get_grad_norm(self.model.parameters(), self.dp_cp_group, self.tp_group)
        if self.cfg["max_grad_norm"] is not None:
            clip_grad_by_total_norm_(
                self.model.parameters(), self.cfg["max_grad_norm"], grad_norm
            )
        self.optimizer.step()
        return {"grad_norm": grad_norm}
