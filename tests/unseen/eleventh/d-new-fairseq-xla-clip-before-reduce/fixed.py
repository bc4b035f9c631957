"""fairseq trainer on TPU cores."""
import torch
import torch_xla.core.xla_model as xm


class Trainer:
    def __init__(self, args, task, model, criterion, optimizer):
        self.args, self.task = args, task
        self.model, self.criterion, self.optimizer = model, criterion, optimizer

    def clip_grad_norm(self, clip_norm):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)

    def train_step(self, samples):
        self.model.train()
        self.optimizer.zero_grad()
        for sample in samples:
            loss, sample_size, _ = self.criterion(self.model, sample)
            (loss / sample_size / len(samples)).backward()

        xm.reduce_gradients(self.optimizer)
        grad_norm = self.clip_grad_norm(self.args.clip_norm)
        self.optimizer.step()
        self.task.update_step()
        return grad_norm
