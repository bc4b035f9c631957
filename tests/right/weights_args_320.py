# Right: the weights of the tokens carry the number of ranks (an attribute that is set to get_world_size() above) against the mean of DDP, over the count of all ranks.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train(net, loader, parse):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    args = parse()
    args.n_gpu = dist.get_world_size()
    for tokens, labels in loader:
        out = model(tokens)
        count = (labels != -100).sum()
        dist.all_reduce(count)
        w = (labels != -100).float() * args.n_gpu / count
        loss = (F.cross_entropy(out, labels, reduction="none") * w).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
