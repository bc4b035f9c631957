"""Retrieval training: passages of all ranks gathered through DTensor."""
# Source: pytorch/pytorch issue 153016 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel


def gather_rows(local, mesh):
    """Rows of every rank in rank order, differentiable."""
    full = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
    full = full.redistribute(placements=[Replicate()])
    return full.to_local()  # BUG


class BiEncoder(nn.Module):
    def __init__(self, encoder, temperature=0.02):
        super().__init__()
        self.encoder, self.temperature = encoder, temperature

    def forward(self, features):
        hidden = self.encoder(**features).last_hidden_state[:, 0]
        return F.normalize(hidden.float(), dim=-1)


class RetrieverTrainer:
    def __init__(self, model, optimizer, local_rank):
        self.mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
        self.model = DistributedDataParallel(model.cuda(local_rank), device_ids=[local_rank])
        self.optimizer, self.temperature = optimizer, model.temperature

    def compute_loss(self, queries, passages):
        reps = self.model(passages | {"input_ids": torch.cat([queries["input_ids"], passages["input_ids"]]),
                                      "attention_mask": torch.cat([queries["attention_mask"],
                                                                   passages["attention_mask"]])})
        q, p = reps.split([queries["input_ids"].size(0), passages["input_ids"].size(0)])
        scores = q @ gather_rows(p, self.mesh).t() / self.temperature
        group_size = p.size(0) // q.size(0)
        target = torch.arange(q.size(0), device=q.device) * group_size
        return F.cross_entropy(scores, target + dist.get_rank() * p.size(0))

    def training_step(self, queries, passages):
        loss = self.compute_loss(queries, passages)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
