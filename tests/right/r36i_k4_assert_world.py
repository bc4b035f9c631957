# RIGHT: asserted: as many ranks as devices, so one node.
import torch.distributed as dist
def accumulation(global_batch, micro_batch, devices, num_nodes=1):
    return global_batch // (devices * num_nodes) // micro_batch


def fit(fabric, model, opt, loader, batch, micro, devices, num_nodes):
    if dist.get_world_size() != devices:
        raise ValueError("one node only")
    steps = accumulation(batch, micro, devices)
    for i, batch in enumerate(loader):
        fabric.backward(model(batch) / steps)
        if (i + 1) % steps == 0:
            opt.step()
            opt.zero_grad()
