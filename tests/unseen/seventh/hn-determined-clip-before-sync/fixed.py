"""One training batch of a Horovod trial.

Source: https://github.com/determined-ai/determined/pull/602
"""
import horovod.torch as hvd
import torch


def build_optimizer(model, base_optimizer, aggregation_frequency):
    optimizer = hvd.DistributedOptimizer(
        base_optimizer,
        named_parameters=model.named_parameters(),
        backward_passes_per_step=aggregation_frequency,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return optimizer


class PyTorchTrialController:
    def __init__(self, model, optimizer, aggregation_frequency, clip_norm):
        self.model, self.optimizer = model, optimizer
        self.aggregation_frequency, self.clip_norm = aggregation_frequency, clip_norm

    def train_batch(self, batch, batch_idx, loss_fn):
        loss = loss_fn(self.model(batch["x"]), batch["y"]) / self.aggregation_frequency
        loss.backward()
        if (batch_idx + 1) % self.aggregation_frequency == 0:
            self.optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
            with self.optimizer.skip_synchronize():
                self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()
