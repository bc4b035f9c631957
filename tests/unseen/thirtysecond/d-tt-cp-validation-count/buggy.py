"""Validation loss with context parallelism.
pytorch/torchtitan #3257, "Wrong token count in validation when CP>1".
"""
import torch
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F

IGNORE_INDEX = -100


def dist_sum(x, mesh):
    if mesh is None:
        return x
    return funcol.all_reduce(x, reduceOp="SUM", group=mesh)


class Validator:
    def __init__(self, dataloader, parallel_dims, cp_shard):
        self.dataloader, self.parallel_dims, self.cp_shard = dataloader, parallel_dims, cp_shard

    def post_dataloading_process(self, inputs, labels):
        """Positions are added; with CP the rank keeps its part of the sequence."""
        positions = torch.arange(inputs.size(1), device=inputs.device).expand_as(inputs)
        if self.parallel_dims.cp_enabled:
            cp_mesh = self.parallel_dims.get_mesh("cp")
            inputs, labels, positions = self.cp_shard(cp_mesh, inputs, labels, positions)
        return inputs, labels, positions

    @torch.no_grad()
    def validate(self, model, steps):
        batch_mesh = self.parallel_dims.get_optional_mesh("batch")  # data-parallel ranks
        loss_mesh = self.parallel_dims.get_optional_mesh("loss")  # data- and context-parallel ranks
        losses = []
        for step, (inputs, labels) in enumerate(self.dataloader):
            if step == steps:
                break
            inputs, labels = inputs.cuda(), labels.cuda()
            inputs, labels, positions = self.post_dataloading_process(inputs, labels)
            local_valid_tokens = (labels != IGNORE_INDEX).sum()  # BUG
            global_valid_tokens = dist_sum(local_valid_tokens.float(), batch_mesh)
            pred = model(inputs, positions)
            loss_sum = F.cross_entropy(
                pred.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum", ignore_index=IGNORE_INDEX
            )
            losses.append(loss_sum / global_valid_tokens)
        return dist_sum(torch.stack(losses).mean(), loss_mesh)
