"""Schedule without pipelining."""
import torch
import torch.distributed as dist


class NoPipeline:
    def __init__(self, model, dp_group, num_microbatches):
        self.model, self.dp_group, self.num_microbatches = model, dp_group, num_microbatches

    def forward_step(self, batch):
        loss = self.model(batch).mean()
        return loss / self.num_microbatches

    def run(self, batches):
        for batch in batches:
            self.forward_step(batch).backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, group=self.dp_group)
            p.grad.div_(dist.get_world_size(self.dp_group))
