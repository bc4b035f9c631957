import torch
import torch.nn.functional as F
from accelerate import Accelerator


class Net(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = torch.nn.Linear(n, n)

    def forward(self, x):
        return self.layer(x)


def train(args, loader):
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    model = Net(args.n)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, labels in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), labels, reduction="sum") / labels.shape[0]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
