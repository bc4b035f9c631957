"""Multi-process data parallelism on TPU."""
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


def _mp_fn(index, build_model, dataset):
    device = xm.xla_device()
    model = build_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal()
    )
    loader = pl.MpDeviceLoader(torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler), device)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()  # BUG: nothing reduces the gradients


if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=())
