"""Training step with and without pipeline parallelism."""
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import Schedule1F1B


def cross_entropy_sum(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(), reduction="sum")


class Trainer:
    def __init__(self, model, stage, n_microbatches, parallel_dims):
        self.model, self.stage, self.parallel_dims = model, stage, parallel_dims
        self.global_valid_tokens = None
        if parallel_dims.pp_enabled:
            self.pp_schedule = Schedule1F1B(
                stage,
                n_microbatches,
                loss_fn=self.loss_fn,
                scale_grads=False,
            )

    def loss_fn(self, pred, labels):
        return cross_entropy_sum(pred, labels) / self.global_valid_tokens

    def forward_backward_step(self, inputs, labels):
        # FSDP sums over the data ranks (gradient divide factor 1)
        self.global_valid_tokens = (labels != -100).sum()
        dist.all_reduce(self.global_valid_tokens, group=self.parallel_dims.get_mesh("loss").get_group())
        if self.parallel_dims.pp_enabled:
            args = (inputs,) if self.stage.is_first else ()
            self.pp_schedule.step(*args, target=labels)
        else:
            self.loss_fn(self.model(inputs), labels).backward()
