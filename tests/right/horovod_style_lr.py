"""Plain SGD on summed gradients: the mean is in the learning rate."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def sum_gradients(model):
    works = []
    for p in model.parameters():
        if p.grad is not None:
            works.append(dist.all_reduce(p.grad, async_op=True))
    for w in works:
        w.wait()


def train(model, dataset, base_lr=0.1):
    world = dist.get_world_size()
    # a sum of `world` gradients: lr / world times the sum is lr times the mean
    optimizer = torch.optim.SGD(model.parameters(), lr=base_lr / world)
    loader = DataLoader(dataset, batch_size=64, sampler=DistributedSampler(dataset))
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        sum_gradients(model)
        optimizer.step()


if __name__ == "__main__":
    import recipe

    dist.init_process_group("nccl")
    net = recipe.net().cuda()
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    train(net, recipe.data())
