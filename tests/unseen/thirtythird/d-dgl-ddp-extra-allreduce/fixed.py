"""Distributed GraphSAGE training on a partitioned graph.

Source: https://github.com/dmlc/dgl/pull/2192 (removes the loop; there the sum was divided again
and the loop only wasted time, here the division is missing).
Wrong: DistributedDataParallel has averaged the gradients in backward already; summing the
averages makes them num_trainers times too large.
Repair: no second reduction.
"""
import dgl
import torch as th
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


def run(args, device, train_nid, g, model):
    sampler = dgl.dataloading.NeighborSampler([int(f) for f in args.fan_out.split(",")])
    dataloader = dgl.dataloading.DistNodeDataLoader(
        g, train_nid, sampler, batch_size=args.batch_size, shuffle=True, drop_last=False
    )
    model = model.to(device)
    if not args.standalone:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.num_epochs):
        for input_nodes, seeds, blocks in dataloader:
            batch_inputs = g.ndata["features"][input_nodes].to(device)
            batch_labels = g.ndata["labels"][seeds].long().to(device)
            blocks = [block.to(device) for block in blocks]
            batch_pred = model(blocks, batch_inputs)
            loss = F.cross_entropy(batch_pred, batch_labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if g.rank() == 0:
            th.save(model.state_dict(), f"epoch-{epoch}.pt")
