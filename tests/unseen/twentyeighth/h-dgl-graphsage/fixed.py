"""Multi-GPU GraphSAGE on one machine, one process a GPU."""
import argparse
import math

import dgl
import dgl.nn.pytorch as dglnn
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class SAGE(nn.Module):
    def __init__(self, in_feats, n_hidden, n_classes, n_layers, dropout):
        super().__init__()
        dims = [in_feats] + [n_hidden] * (n_layers - 1) + [n_classes]
        self.layers = nn.ModuleList(
            dglnn.SAGEConv(a, b, "mean") for a, b in zip(dims[:-1], dims[1:])
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks, x):
        for i, (layer, block) in enumerate(zip(self.layers, blocks)):
            x = layer(block, x)
            if i != len(self.layers) - 1:
                x = self.dropout(F.relu(x))
        return x


def build_loader(graph, train_nid, proc_id, n_gpus, args, device):
    sampler = dgl.dataloading.NeighborSampler([int(f) for f in args.fan_out.split(",")])
    return dgl.dataloading.DataLoader(
        graph,
        train_nid,
        sampler,
        device=device,
        use_ddp=n_gpus > 1,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=False,
        num_workers=args.num_workers,
    )


def run(proc_id, n_gpus, args, data):
    device = torch.device("cuda", proc_id)
    torch.cuda.set_device(device)
    if n_gpus > 1:
        dist.init_process_group(
            "nccl", init_method="tcp://127.0.0.1:12345", world_size=n_gpus, rank=proc_id
        )
    graph, n_classes = data
    train_nid = graph.ndata["train_mask"].nonzero(as_tuple=True)[0]
    in_feats = graph.ndata["features"].shape[1]
    model = SAGE(in_feats, args.num_hidden, n_classes, args.num_layers, args.dropout).to(device)
    if n_gpus > 1:
        model = DistributedDataParallel(model, device_ids=[proc_id], output_device=proc_id)
    loader = build_loader(graph, train_nid, proc_id, n_gpus, args, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.num_epochs):
        model.train()
        for input_nodes, seeds, blocks in loader:
            x = graph.ndata["features"][input_nodes.cpu()].to(device)
            y = graph.ndata["labels"][seeds.cpu()].to(device)
            loss = F.cross_entropy(model(blocks, x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if n_gpus > 1:
            dist.barrier()
        if proc_id == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--num-epochs", type=int, default=20)
    parser.add_argument("--num-hidden", type=int, default=256)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--fan-out", default="10,25")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--num-workers", type=int, default=0)
    args = parser.parse_args()
    dataset = dgl.data.RedditDataset(self_loop=True)
    graph = dataset[0]
    graph.ndata["features"], graph.ndata["labels"] = graph.ndata["feat"], graph.ndata["label"]
    graph.create_formats_()
    mp.spawn(run, args=(args.gpus, args, (graph, dataset.num_classes)), nprocs=args.gpus)


if __name__ == "__main__":
    main()
