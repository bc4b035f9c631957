"""Each rank looks for the code of an image of its own; the model stays as it is."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def invert(generator, target, steps):
    w = torch.zeros(1, 512, device=target.device, requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=0.01)
    for _ in range(steps):
        image = generator.module(w)
        loss = torch.nn.functional.mse_loss(image, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return w.detach()


def main(net, targets, device):
    generator = DDP(net, device_ids=[device])
    return [invert(generator, t, 500) for t in targets]
