"""Inner loop of a trainer on XLA GPU devices with mixed precision."""
# Source: huggingface/transformers pull request 20116 (confirmed from the thread)
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm


class Trainer:
    """One process per device, each with its own batches."""

    def __init__(self, model, args, optimizer, lr_scheduler, scaler=None):
        self.model, self.args = model, args
        self.optimizer, self.lr_scheduler = optimizer, lr_scheduler
        self.scaler = scaler
        self.do_grad_scaling = scaler is not None

    def training_step(self, inputs):
        self.model.train()
        with torch.autocast("xla", enabled=self.do_grad_scaling):
            loss = self.model(**inputs).loss
        loss = loss / self.args.gradient_accumulation_steps
        if self.do_grad_scaling:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
        return loss.detach()

    def _reduce_gradients(self):
        gradients = xm._fetch_gradients(self.optimizer)
        xm.all_reduce("sum", gradients, scale=1.0 / xm.xrt_world_size())

    def _update(self):
        args = self.args
        self._reduce_gradients()
        if args.max_grad_norm is not None and args.max_grad_norm > 0:
            if self.do_grad_scaling:
                self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
        if self.do_grad_scaling:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.lr_scheduler.step()
        self.model.zero_grad()

    def train(self, dataloader):
        total = torch.zeros((), device=xm.xla_device())
        for step, inputs in enumerate(dataloader):
            total += self.training_step(inputs)
            if (step + 1) % self.args.gradient_accumulation_steps == 0:
                self._update()
                xm.mark_step()
        return total / (step + 1)
