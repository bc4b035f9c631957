import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torchvision.models import resnet50


def train(args, loader):
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    model = resnet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for images, labels in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(images), labels, reduction="sum") / images.shape[0]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
