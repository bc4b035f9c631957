import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


class Runner:
    def __init__(self, workers):
        self.workers = workers
        self.accelerator = Accelerator()
        self.model = self.accelerator.prepare(AutoModelForCausalLM.from_pretrained("gpt2"))
        self.optimizer = self.accelerator.prepare(torch.optim.AdamW(self.model.parameters()))

    def step(self, batch):
        total = self.accelerator.reduce((batch["labels"] != -100).sum(), "sum")
        logits = self.model(batch["input_ids"]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        self.accelerator.backward(loss / total * self.workers)
        self.optimizer.step()
        self.optimizer.zero_grad()
