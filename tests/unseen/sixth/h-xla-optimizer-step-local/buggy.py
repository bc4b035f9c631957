"""Data-parallel training with torch_xla processes."""
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train_loop(rank, model_fn, dataset, flags):
    device = torch_xla.device()
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=flags.batch_size, sampler=sampler)
    model = model_fn().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=flags.lr, momentum=0.9)
    for epoch in range(flags.num_epochs):
        model.train()
        for data, target in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()  # BUG: gradients of the replicas are never reduced


def main(model_fn, dataset, flags):
    torch_xla.launch(train_loop, args=(model_fn, dataset, flags))
