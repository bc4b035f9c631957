import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, loss_parallel, parallelize_module


def loss_fn(hidden, labels, lm_head):
    weight = lm_head.weight.full_tensor() if isinstance(lm_head.weight, DTensor) else lm_head.weight
    return F.cross_entropy(F.linear(hidden, weight).flatten(0, 1), labels.flatten())


def apply_tp(model, tp_mesh):
    parallelize_module(model, tp_mesh, {"lm_head": ColwiseParallel(), "embed_tokens": RowwiseParallel(input_layouts=Replicate())})
