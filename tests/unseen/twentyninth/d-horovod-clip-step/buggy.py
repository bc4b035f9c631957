"""Image classifier on Horovod with gradient clipping."""
import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def build(model, train_set, args):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    model.cuda()

    sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    # the loss of each rank is divided by the global batch, so the contributions are added
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return model, optimizer, sampler, loader


def train(epoch, model, optimizer, sampler, loader, args):
    model.train()
    sampler.set_epoch(epoch)
    for data, target in loader:
        data, target = data.cuda(), target.cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target, reduction="sum") / (args.batch_size * hvd.size())
        loss.backward()

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()  # BUG
