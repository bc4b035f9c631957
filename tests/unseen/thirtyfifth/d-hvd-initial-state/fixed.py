"""Horovod training script for an image classifier."""
# thread: horovod/horovod#672
import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torchvision.models import resnet50


def main(dataset, args):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(args.seed + hvd.rank())  # other augmentations on every worker
    sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

    model = resnet50(weights=None).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.base_lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, target in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.cuda()), target.cuda())
            loss.backward()
            optimizer.step()
        if hvd.rank() == 0:
            torch.save(model.state_dict(), args.checkpoint)
