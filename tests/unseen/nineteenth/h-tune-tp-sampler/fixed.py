"""Data loading of a recipe with tensor and data parallelism (written from memory of pytorch/torchtune)."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils.data import DataLoader, DistributedSampler


class FullFinetuneRecipeDistributed:
    def __init__(self, model, tp_plan, tp_size, seed=0):
        self.world_size, self.rank = dist.get_world_size(), dist.get_rank()
        self.mesh = init_device_mesh(
            "cuda", (self.world_size // tp_size, tp_size), mesh_dim_names=("dp", "tp")
        )
        parallelize_module(model, self.mesh["tp"], parallelize_plan=tp_plan)
        fully_shard(model, mesh=self.mesh["dp"])
        self.model, self.seed = model, seed
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)

    def setup_data(self, dataset, batch_size, collate_fn):
        sampler = DistributedSampler(
            dataset,
            num_replicas=self.mesh["dp"].size(),
            rank=self.mesh["dp"].get_local_rank(),
            shuffle=True,
            seed=self.seed,
        )
        return DataLoader(dataset, batch_size=batch_size, sampler=sampler, collate_fn=collate_fn)

    def train_epoch(self, loader, epoch):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.cuda() for k, v in batch.items()}
            logits = self.model(batch["tokens"])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
