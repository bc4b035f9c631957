"""Numbers for the log: detached losses reduced in place, meters, predictions gathered from all ranks with a length that differs."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class AverageMeter:
    def __init__(self, name, device):
        self.name = name
        self.state = torch.zeros(2, dtype=torch.float64, device=device)

    def update(self, value, n=1):
        self.state[0] += value.detach() * n
        self.state[1] += n

    def all_reduce(self):
        total = self.state.clone()
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        return (total[0] / total[1]).item()


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum() * (100.0 / target.size(0)) for k in topk]


@torch.no_grad()
def gather_predictions(pred):
    """Pads to the longest of all ranks and cuts the padding off again."""
    size = torch.tensor([pred.size(0)], device=pred.device)
    sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    longest = int(torch.cat(sizes).max())
    padded = pred.new_zeros((longest, *pred.shape[1:]))
    padded[: pred.size(0)] = pred
    blocks = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(blocks, padded)
    return torch.cat([block[: int(n)] for block, n in zip(blocks, sizes)])


def train_one_epoch(model, loader, sampler, optimizer, epoch):
    model = model if isinstance(model, DDP) else DDP(model)
    sampler.set_epoch(epoch)
    losses, top1 = AverageMeter("loss", "cuda"), AverageMeter("acc@1", "cuda")
    for images, target in loader:
        images, target = images.cuda(non_blocking=True), target.cuda(non_blocking=True)
        output = model(images)
        loss = F.cross_entropy(output, target)
        reduced = loss.data.clone()
        dist.all_reduce(reduced)
        reduced /= dist.get_world_size()
        losses.update(reduced, images.size(0))
        top1.update(accuracy(output, target)[0], images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses.all_reduce(), top1.all_reduce()
