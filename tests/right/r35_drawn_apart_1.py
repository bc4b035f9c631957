"""The model is drawn before ranks get seeds of their own."""
import horovod.torch as hvd
import torch
from torchvision.models import resnet50


def main(args, loader, loss_fn):
    hvd.init()
    torch.manual_seed(args.seed)
    model = resnet50(weights=None).cuda()
    torch.manual_seed(args.seed + hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for x, y in loader:
        loss_fn(model(x), y).backward()
        optimizer.step()
