"""Multi-process data-parallel training on TPU."""
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def train_imagenet(index, flags, build_model, train_dataset):
    torch.manual_seed(42)
    device = xm.xla_device()
    train_sampler = torch.utils.data.distributed.DistributedSampler(
        train_dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=flags.batch_size, sampler=train_sampler, drop_last=True
    )
    model = build_model().to(device)
    xm.broadcast_master_param(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=flags.lr, momentum=0.9)
    loss_fn = torch.nn.CrossEntropyLoss()

    train_device_loader = pl.MpDeviceLoader(train_loader, device)
    for epoch in range(flags.num_epochs):
        train_sampler.set_epoch(epoch)
        model.train()
        for data, target in train_device_loader:
            optimizer.zero_grad()
            loss = loss_fn(model(data), target)
            loss.backward()
            xm.optimizer_step(optimizer)


def main(flags, build_model, train_dataset):
    xmp.spawn(train_imagenet, args=(flags, build_model, train_dataset))
