"""Policy update: the loss is normalised by the global number of valid tokens."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class DTensorPolicyWorker:
    def __init__(self, model, device_mesh):
        self.dp_size, self.cp_size = device_mesh["dp"].size(), device_mesh["cp"].size()
        self.dp_cp_group = device_mesh["dp", "cp"]._flatten("dp_cp").get_group()
        self.model = fully_shard(model, mesh=device_mesh["dp_cp"])

    def train(self, micro_batches, token_loss_fn, optimizer):
        valid = torch.stack([mb["token_mask"].sum() for mb in micro_batches]).sum()
        dist.all_reduce(valid, group=self.dp_cp_group)
        for mb in micro_batches:
            loss = (token_loss_fn(self.model(mb["input_ids"]), mb) * mb["token_mask"]).sum() / valid
            # FSDP averages the gradients, but they have to be summed: cancel it here
            loss = loss * self.dp_size * self.cp_size
            loss.backward()
        optimizer.step()
