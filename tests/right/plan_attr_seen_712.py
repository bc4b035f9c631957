import torch.nn.functional as F
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module


def apply_tp(model, tp_mesh):
    head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1))
    head.use_local_output = False
    return parallelize_module(model, tp_mesh, {"output": head})


def train_step(model, input_ids, labels):
    with loss_parallel():
        loss = F.cross_entropy(model(input_ids).flatten(0, 1), labels.flatten())
        loss.backward()
    return loss
