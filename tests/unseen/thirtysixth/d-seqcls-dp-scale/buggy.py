# thread: https://github.com/NVIDIA-NeMo/Automodel/pull/3830
"""Recipe for sequence classification with data-parallel and fully sharded models."""
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForSequenceClassification


@dataclass
class RecipeConfig:
    model_name: str = "meta-llama/Llama-3.2-1B"
    num_labels: int = 2
    max_grad_norm: float = 1.0
    lr: float = 2e-5
    local_batch_size: int = 8
    global_batch_size: int = 256


def count_labels(batches) -> int:
    return sum(int((b["labels"] != -100).sum()) for b in batches)


class TrainFinetuneRecipeForSequenceClassification:
    def __init__(self, cfg: RecipeConfig, device: torch.device, dp_group):
        self.cfg, self.device, self.dp_group = cfg, device, dp_group

    def setup(self, train_loader, val_loader):
        model = AutoModelForSequenceClassification.from_pretrained(
            self.cfg.model_name, num_labels=self.cfg.num_labels, torch_dtype=torch.bfloat16
        ).to(self.device)
        self.model = DistributedDataParallel(
            model, device_ids=[self.device.index], process_group=self.dp_group
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.cfg.lr)
        self.train_loader, self.val_loader = train_loader, val_loader

    def _get_dp_group_size(self) -> int:
        return dist.get_world_size(self.dp_group)

    def _dp_allreduce(self, tensor, op=dist.ReduceOp.SUM):
        dist.all_reduce(tensor, op=op, group=self.dp_group)
        return tensor

    def _forward(self, batch):
        labels = batch["labels"].to(self.device).view(-1)
        out = self.model(
            input_ids=batch["input_ids"].to(self.device),
            attention_mask=batch["attention_mask"].to(self.device),
        )
        return out.logits.float().view(-1, self.cfg.num_labels), labels

    def _forward_backward_step(self, batch, is_last, num_batches, num_labels):
        sync = nullcontext() if is_last else self.model.no_sync()
        with sync:
            logits, labels = self._forward(batch)
            loss = nn.functional.cross_entropy(logits, labels, ignore_index=-100) / num_batches
            (loss * self._get_dp_group_size()).backward()  # BUG
        return loss.detach()

    def _run_train_optim_step(self, batches):
        """One optimizer step over the micro batches of this rank."""
        self.model.train()
        num_labels = torch.tensor(count_labels(batches), device=self.device)
        num_labels = self._dp_allreduce(num_labels).clamp(min=1)
        losses = []
        for i, batch in enumerate(batches):
            losses.append(self._forward_backward_step(batch, i == len(batches) - 1, len(batches), num_labels))
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return torch.stack(losses).sum(), grad_norm, num_labels

    @torch.no_grad()
    def _run_validation_epoch(self):
        self.model.eval()
        totals = torch.zeros(2, device=self.device)
        for batch in self.val_loader:
            logits, labels = self._forward(batch)
            totals[0] += (logits.argmax(-1) == labels).sum()
            totals[1] += labels.numel()
        correct, count = self._dp_allreduce(totals).tolist()
        return correct / max(count, 1)

    def run_train_validation_loop(self, epochs):
        accumulation = self.cfg.global_batch_size // (self.cfg.local_batch_size * self._get_dp_group_size())
        for epoch in range(epochs):
            self.train_loader.sampler.set_epoch(epoch)
            window = []
            for batch in self.train_loader:
                window.append(batch)
                if len(window) == accumulation:
                    loss, grad_norm, _ = self._run_train_optim_step(window)
                    window = []
            accuracy = self._run_validation_epoch()
            if dist.get_rank() == 0:
                print(f"epoch {epoch} accuracy {accuracy:.4f} grad_norm {grad_norm:.3f}")
