import torch
from accelerate import Accelerator
from transformers import ViTMAEModel


def train(args, loader, decoder):
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    model = ViTMAEModel.from_pretrained("facebook/vit-mae-base")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for images, target in loader:
        with accelerator.accumulate(model):
            out = model(images)
            pred = decoder(out.last_hidden_state)
            loss = ((pred - target) ** 2).mean(-1)
            loss = (loss * out.mask).sum() / out.mask.sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
