import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = torch.nn.Conv2d(1, 10, 5)
        self.c2 = torch.nn.Conv2d(10, 20, 5)
        self.f1 = torch.nn.Linear(320, 50)
        self.f2 = torch.nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.c1(x), 2))
        x = F.relu(F.max_pool2d(self.c2(x), 2))
        return F.log_softmax(self.f2(F.relu(self.f1(x.flatten(1)))), dim=1)


def average_gradients(model):
    for param in model.parameters():
        dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
        param.grad.divide_(dist.get_world_size())


def run():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(1234)
    tf = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    train = datasets.MNIST(os.environ.get("DATA", "data"), train=True, download=False, transform=tf)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=64, sampler=sampler, num_workers=2)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data.to(device)), target.to(device))
            loss.backward()
            average_gradients(model)
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
