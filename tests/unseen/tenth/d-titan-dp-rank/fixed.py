"""Trainer: data loading with data, tensor and pipeline parallelism.

pytorch/torchtitan f04a4910f39b, torchtitan/train.py
"""
import os

import torch
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchdata.stateful_dataloader import StatefulDataLoader


class Trainer:
    def __init__(self, job_config, parallel_dims, build_model, parallelize_tp):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        world_mesh = init_device_mesh(
            "cuda",
            (parallel_dims.pp, parallel_dims.dp, parallel_dims.tp),
            mesh_dim_names=("pp", "dp", "tp"),
        )
        if parallel_dims.dp_enabled:
            dp_mesh = world_mesh["dp"]
            dp_degree, dp_rank = dp_mesh.size(), dp_mesh.get_local_rank()
        else:
            dp_degree, dp_rank = 1, 0

        dataset = load_dataset(job_config.training.dataset, split="train", streaming=True)
        self.dataloader = StatefulDataLoader(
            split_dataset_by_node(dataset, dp_rank, dp_degree),
            batch_size=job_config.training.local_batch_size,
        )

        model = build_model(job_config)
        parallelize_tp(model, world_mesh["tp"])
        for layer in model.layers.values():
            fully_shard(layer, mesh=world_mesh["dp"])
        self.model = fully_shard(model, mesh=world_mesh["dp"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=job_config.optimizer.lr)

    def train_step(self, data_iterator):
        self.optimizer.zero_grad()
        batch = next(data_iterator)
        loss = self.model(batch["tokens"].cuda(), batch["labels"].cuda())
        loss.backward()
        self.optimizer.step()
