# Reduces PyTorch Geometric's multi-GPU sampling example: torch.chunk gives the last rank fewer seed nodes, hence
# fewer batches, and the other ranks wait in the gradient all-reduce of a step it never takes.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE


def seed_nodes(train_mask, rank, world_size):
    train_idx = train_mask.nonzero(as_tuple=False).view(-1)
    return train_idx.chunk(world_size)[rank]  # BUG


def run(rank, world_size, data, num_classes):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.manual_seed(12345)
    loader = NeighborLoader(
        data, num_neighbors=[25, 10], input_nodes=seed_nodes(data.train_mask, rank, world_size),
        batch_size=1024, shuffle=True,
    )
    model = GraphSAGE(data.num_features, 256, num_layers=2, out_channels=num_classes).to(rank)
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for epoch in range(20):
        model.train()
        for batch in loader:
            batch = batch.to(rank)
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
        dist.barrier()
    dist.destroy_process_group()
