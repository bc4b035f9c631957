# Reduces accelerate's example scripts before gather_for_metrics: the last batch is padded with samples from the
# start so that all ranks have equally many, and the padding is counted in the accuracy.
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


class AccuracyMeter:
    def __init__(self):
        self.correct, self.total = 0, 0

    def add(self, predictions, references):
        self.correct += (predictions == references).sum().item()
        self.total += references.numel()

    def compute(self):
        return self.correct / self.total


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    meter = AccuracyMeter()
    for batch in loader:
        predictions = model(**batch).logits.argmax(dim=-1)
        predictions, references = accelerator.gather_for_metrics((predictions, batch["labels"]))
        meter.add(predictions, references)
    return meter.compute()


def main(model, train_set, eval_set, collate, lr=2e-5, epochs=3):
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True, collate_fn=collate)
    eval_loader = DataLoader(eval_set, batch_size=32, collate_fn=collate)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, train_loader, eval_loader)
    for epoch in range(epochs):
        model.train()
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(epoch, evaluate(accelerator, model, eval_loader))
