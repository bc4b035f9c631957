import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


class SFT:
    def __init__(self, args, loader):
        self.args = args
        self.accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
        model = AutoModelForCausalLM.from_pretrained(args.model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)

    def loss(self, batch):
        mask = batch["mask"]
        losses = F.cross_entropy(self.model(batch["ids"]).logits.transpose(1, 2), batch["labels"], reduction="none")
        return (losses * mask).sum() / mask.sum()

    def run(self):
        for batch in self.loader:
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(self.loss(batch))
                self.optimizer.step()
                self.optimizer.zero_grad()
