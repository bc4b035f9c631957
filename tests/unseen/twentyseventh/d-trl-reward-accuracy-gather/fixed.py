"""Pairwise accuracy of a reward model on the evaluation set."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


class PairCollator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, examples):
        texts = [e["chosen"] for e in examples] + [e["rejected"] for e in examples]
        return self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")


@torch.no_grad()
def evaluate(model, dataloader, accelerator):
    model.eval()
    accuracies, margins = [], []
    for batch in dataloader:
        rewards = model(**batch).logits.squeeze(-1)
        chosen, rejected = rewards.chunk(2)
        accuracy = (chosen > rejected).float()
        accuracies.append(accelerator.gather_for_metrics(accuracy))
        margins.append(accelerator.gather_for_metrics(chosen - rejected))
    return {
        "eval_accuracy": torch.cat(accuracies).mean().item(),
        "eval_margin": torch.cat(margins).mean().item(),
    }


def main(model, tokenizer, eval_dataset, batch_size):
    accelerator = Accelerator()
    loader = DataLoader(eval_dataset, batch_size=batch_size, collate_fn=PairCollator(tokenizer))
    model, loader = accelerator.prepare(model, loader)
    metrics = evaluate(model, loader, accelerator)
    accelerator.print(metrics)
