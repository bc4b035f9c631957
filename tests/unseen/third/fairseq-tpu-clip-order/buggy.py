"""Trainer step on TPU cores."""
# Source: pytorch/xla issue 1708 and pytorch-tpu/fairseq pull request 32 (confirmed from the threads)
import torch
import torch_xla.core.xla_model as xm


class Trainer:
    """One process per TPU core, each with its own batch."""

    def __init__(self, args, task, model, criterion, optimizer, lr_scheduler):
        self.args, self.task = args, task
        self.model, self.criterion = model, criterion
        self.optimizer, self.lr_scheduler = optimizer, lr_scheduler
        self._num_updates = 0

    def _sample_size(self, samples):
        count = torch.tensor(float(sum(s["ntokens"] for s in samples)), device=xm.xla_device())
        return xm.all_reduce(xm.REDUCE_SUM, count)

    def multiply_grads(self, factor):
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.data.mul_(factor)

    def clip_grad_norm(self, clip_norm):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)

    def train_step(self, samples):
        self.model.train()
        self.optimizer.zero_grad()
        logging_outputs = []
        for sample in samples:
            loss, logging_output = self.criterion(self.model, sample)  # sum over tokens
            loss.backward()
            logging_outputs.append(logging_output)

        self.multiply_grads(xm.xrt_world_size() / self._sample_size(samples))
        grad_norm = self.clip_grad_norm(self.args.clip_norm)  # BUG
        xm.optimizer_step(self.optimizer)
        xm.mark_step()
        self._num_updates += 1
        self.lr_scheduler.step_update(self._num_updates)
        return grad_norm, logging_outputs
