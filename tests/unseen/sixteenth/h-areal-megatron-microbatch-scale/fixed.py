# inclusionAI/AReaL pull request 1273 (commit 5e9fb505c)
"""Training step of the Megatron engine; context parallel size is 1."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def forward_backward_no_pipelining(forward_step, data_iterator, model, num_microbatches):
    for _ in range(num_microbatches):
        output, process_output = forward_step(data_iterator, model)
        loss, _ = process_output(output)
        loss = loss / num_microbatches
        loss.backward()


def finish_grad_sync(model):
    group = mpu.get_data_parallel_group()
    for param in model.parameters():
        if param.grad is not None:
            param.grad.div_(dist.get_world_size(group))
            dist.all_reduce(param.grad, group=group)


class MegatronEngine:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def train_batch(self, mb_list, loss_fn, loss_weight_fn):
        self.optimizer.zero_grad()
        total_loss_weight = torch.stack([loss_weight_fn(mb) for mb in mb_list]).sum().float()
        dist.all_reduce(total_loss_weight, group=mpu.get_data_parallel_group())
        loss_multiplier = mpu.get_data_parallel_world_size() * len(mb_list)

        def forward_step(batch_iter, model):
            mb = next(batch_iter)

            def process_output(output):
                loss = loss_fn(output, mb)  # mean over the weight of this micro-batch
                loss_scale = loss_weight_fn(mb) / total_loss_weight * loss_multiplier
                return loss * loss_scale, {}

            return model(mb["input_ids"]), process_output

        forward_backward_no_pipelining(forward_step, iter(mb_list), self.model, len(mb_list))
        finish_grad_sync(self.model)
        self.optimizer.step()
