"""Pipeline training step: micro-batches of a 1F1B schedule (torchtitan style)."""
import torch
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def cross_entropy_loss(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))


class PipelineTrainer:
    def __init__(self, job_config, parallel_dims, stage_module):
        self.job_config = job_config
        self.pp_mesh = parallel_dims.world_mesh["pp"]
        self.pp_rank = self.pp_mesh.get_local_rank()
        self.pp_size = self.pp_mesh.size()
        fully_shard(stage_module, mesh=parallel_dims.world_mesh["dp"])
        self.model = stage_module
        stage = PipelineStage(
            stage_module, self.pp_rank, self.pp_size, torch.device("cuda"), group=self.pp_mesh.get_group()
        )
        self.gradient_accumulation_steps = job_config.training.gradient_accumulation_steps
        loss_fn = cross_entropy_loss
        self.schedule = Schedule1F1B(
            stage,
            n_microbatches=job_config.parallelism.n_microbatches,
            loss_fn=loss_fn,
            scale_grads=False,  # BUG
        )
        self.optimizer = torch.optim.AdamW(stage_module.parameters(), lr=job_config.optimizer.lr)

    def forward_backward_step(self, input_dict, labels):
        inputs = input_dict["input"]
        if self.pp_rank == 0:
            self.schedule.step(inputs)
        elif self.pp_rank == self.pp_size - 1:
            losses = []
            self.schedule.step(target=labels, losses=losses)
            return torch.mean(torch.stack(losses)).detach()
        else:
            self.schedule.step()
        return torch.tensor(-1.0)

    def train_step(self, iterator):
        self.optimizer.zero_grad()
        input_dict, labels = next(iterator)
        loss = self.forward_backward_step(input_dict, labels)
        self.optimizer.step()
        return loss
