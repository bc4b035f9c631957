# pytorch/torchtitan, issue 2972 - https://github.com/pytorch/torchtitan/issues/2972 (read)
# The loss is a sum and is divided by the global token count before backward, but the pipeline schedule calls
# backward itself on the undivided sum: gradients of a pipeline run are global_valid_tokens times larger.
"""Train step with and without pipeline parallelism; FSDP's own gradient division is disabled."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


def cross_entropy_sum(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(), reduction="sum", ignore_index=-100)


class Trainer:
    def __init__(self, model_parts, optimizers, parallel_dims, pp_schedule=None, first=True, last=True):
        # pp_schedule was built with loss_fn=cross_entropy_sum and scale_grads=False
        self.model_parts, self.optimizers = model_parts, optimizers
        self.parallel_dims, self.pp_schedule = parallel_dims, pp_schedule
        self.pp_has_first_stage, self.pp_has_last_stage = first, last

    def forward_backward_step(self, inputs, labels, global_valid_tokens):
        if self.pp_schedule is not None:
            losses = [] if self.pp_has_last_stage else None
            target = labels if self.pp_has_last_stage else None
            args = (inputs,) if self.pp_has_first_stage else ()
            self.pp_schedule.step(*args, target=target, losses=losses)
            for part in self.model_parts:
                for p in part.parameters():
                    if p.grad is not None:
                        p.grad.div_(global_valid_tokens)
            if self.pp_has_last_stage:
                return torch.stack(losses).sum() / global_valid_tokens
            return torch.tensor(-1.0, device="cuda")
        loss = cross_entropy_sum(self.model_parts[0](inputs), labels) / global_valid_tokens
        loss.backward()
        return loss.detach()

    def train_step(self, inputs, labels):
        self.optimizers.zero_grad()
        valid = (labels != -100).sum()
        dist.all_reduce(valid, group=self.parallel_dims.get_mesh("batch").get_group())
        loss = self.forward_backward_step(inputs, labels, valid)
        self.optimizers.step()
        return loss
