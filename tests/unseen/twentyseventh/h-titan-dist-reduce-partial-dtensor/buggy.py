"""Global token count and loss for training on full DTensors."""
import torch
import torch.distributed._functional_collectives as funcol
import torch.distributed.distributed_c10d as c10d
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

IGNORE_INDEX = -100


def _dist_reduce(x: torch.Tensor, reduce_op: str, mesh: DeviceMesh) -> float:
    if isinstance(x, DTensor):
        # functional collectives do not support DTensor inputs
        x = x.full_tensor()
    assert x.numel() == 1
    return funcol.all_reduce(x, reduceOp=reduce_op, group=mesh).item()  # BUG: full_tensor has already reduced a Partial


def dist_sum(x: torch.Tensor, mesh: DeviceMesh) -> float:
    return _dist_reduce(x, c10d.ReduceOp.SUM.name, mesh)


def train_step(model, input_ids, labels, optimizer, dp_mesh):
    # fully_shard(model, mesh=dp_mesh) with gradient division disabled
    labels_dt = DTensor.from_local(labels, dp_mesh, [Shard(0)], run_check=False)
    global_valid_tokens = dist_sum((labels_dt != IGNORE_INDEX).sum(), dp_mesh)
    logits = model(input_ids)
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
    loss = loss / global_valid_tokens
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return dist_sum(loss.detach(), dp_mesh)
