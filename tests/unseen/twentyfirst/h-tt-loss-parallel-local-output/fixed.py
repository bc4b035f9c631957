"""Vocabulary-parallel output layer and loss."""
import torch.nn.functional as F
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module


def apply_tp(model, tp_mesh):
    parallelize_module(model, tp_mesh, {
        "output": ColwiseParallel(
            input_layouts=Shard(1),
            output_layouts=Shard(-1),
            use_local_output=False,
        ),
    })


def train_step(model, tokens, labels):
    with loss_parallel():
        pred = model(tokens)  # [batch, seq, vocab]
        loss = F.cross_entropy(pred.flatten(0, 1), labels.flatten(0, 1))
        loss.backward()
    return loss
