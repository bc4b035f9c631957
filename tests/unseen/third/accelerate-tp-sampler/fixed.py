"""Training with a data-parallel x tensor-parallel mesh and a distributed sampler."""
# Source: huggingface/accelerate issue 3092 and pull request 3173 (threads; code from memory)
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

LAYER_PLAN = {
    "self_attn.q_proj": ColwiseParallel(),
    "self_attn.k_proj": ColwiseParallel(),
    "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(),
}


def build_mesh(tp_size):
    dp_size = dist.get_world_size() // tp_size
    return init_device_mesh("cuda", (dp_size, tp_size), mesh_dim_names=("dp", "tp"))


def prepare_model(model, mesh):
    for layer in model.model.layers:
        parallelize_module(layer, mesh["tp"], LAYER_PLAN)
        fully_shard(layer, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def prepare_data_loader(dataset, mesh, batch_size, seed=42):
    num_replicas, rank = mesh["dp"].size(), mesh.get_local_rank("dp")
    sampler = DistributedSampler(dataset, num_replicas=num_replicas, rank=rank, shuffle=True, seed=seed)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)


def train(model, dataset, tp_size, batch_size, lr, epochs):
    mesh = build_mesh(tp_size)
    model = prepare_model(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loader = prepare_data_loader(dataset, mesh, batch_size)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            logits = model(batch["input_ids"].cuda()).logits
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten().cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
