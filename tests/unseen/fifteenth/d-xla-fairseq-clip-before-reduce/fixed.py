# Reduced from fairseq's TPU trainer (pytorch-tpu/fairseq pull request 32, pytorch/xla issue 1708, read).
# xm.optimizer_step() all-reduces the gradients (mean over the cores) and then steps.
# What happens: each core clips its local gradient by its own norm, then the clipped ones are
# averaged; grad_norm in the log is that of one core.
import torch
import torch_xla.core.xla_model as xm


class Trainer:
    def __init__(self, args, model, criterion, optimizer, lr_scheduler):
        self.args, self.model, self.criterion = args, model, criterion
        self.optimizer, self.lr_scheduler = optimizer, lr_scheduler

    def multiply_grads(self, c):
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.data.mul_(c)

    def train_step(self, samples):
        self.model.train()
        self.optimizer.zero_grad()
        sample_size = 0
        for sample in samples:
            loss, sample_size_i, logging_output = self.criterion(self.model, sample)
            loss.backward()
            sample_size += sample_size_i
        sample_size = xm.all_reduce(
            xm.REDUCE_SUM, torch.tensor(float(sample_size), device=xm.xla_device())
        )

        # normalize grads by the sample size of all cores, the reduction takes the mean
        self.multiply_grads(xm.xrt_world_size() / sample_size)
        xm.reduce_gradients(self.optimizer)
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip_norm)
        self.optimizer.step()
        self.lr_scheduler.step()
        return grad_norm
