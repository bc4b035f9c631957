"""Accelerate with accumulation: `backward` divides by the rounds, and the loop does not."""
import torch.nn.functional as F
from accelerate import Accelerator


class Loop:
    def __init__(self, policy, optim, args):
        self.args = args
        self.accelerator = Accelerator(gradient_accumulation_steps=args.accum)
        self.policy, self.optim = self.accelerator.prepare(policy, optim)

    def count(self, labels):
        return self.accelerator.gather(labels.ne(-100).sum()).sum()

    def epoch(self, loader):
        for batch in loader:
            with self.accelerator.accumulate(self.policy):
                labels = batch["labels"]
                logits = self.policy(batch["input_ids"])
                losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
                loss = losses / self.count(labels) * self.accelerator.num_processes
                self.accelerator.backward(loss)
                self.optim.step()
                self.optim.zero_grad()
