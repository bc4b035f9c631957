"""The head gives local logits, which the step wraps again before the parallel loss."""

import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module


def apply_tp(model, tp_mesh):
    return parallelize_module(model, tp_mesh, {"lm_head": ColwiseParallel(input_layouts=Shard(1))})


def train_step(model, tp_mesh, input_ids, labels):
    logits = DTensor.from_local(model(input_ids), tp_mesh, [Shard(2)], run_check=False)
    with loss_parallel():
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
    return loss
