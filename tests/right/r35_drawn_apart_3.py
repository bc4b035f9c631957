"""All ranks seed alike before the model is made."""
import horovod.torch as hvd
import torch
from torchvision.models import resnet50


def main(args, loader, loss_fn):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(args.seed + hvd.rank())
    noise = torch.randn(8)
    torch.manual_seed(args.seed)
    model = resnet50(weights=None).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        loss_fn(model(x + noise), y).backward()
        optimizer.step()
