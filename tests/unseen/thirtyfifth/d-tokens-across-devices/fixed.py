"""Fine-tuning step with the token count taken over all devices."""
# thread: huggingface/transformers#34373
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


class TokenMeanTrainer:
    def __init__(self, name, lr):
        self.accelerator = Accelerator()
        model = AutoModelForCausalLM.from_pretrained(name)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        # multi-GPU: the model comes back wrapped in DistributedDataParallel
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def num_items(self, batch):
        count = (batch["labels"][:, 1:] != -100).sum()
        return self.accelerator.gather(count).sum()

    def compute_loss(self, batch):
        logits = self.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        total = F.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), batch["labels"][:, 1:].flatten(),
            ignore_index=-100, reduction="sum")
        return total / self.num_items(batch) * self.accelerator.num_processes

    def training_step(self, batch):
        self.model.train()
        loss = self.compute_loss(batch)
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
