"""Sum gradients over sequence-parallel ranks with hooks, average them over data ranks with FSDP."""
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def register_sp_gradient_hooks(model, sp_group):
    def sum_over_sp(param):
        dist.all_reduce(param.grad.to_local(), op=dist.ReduceOp.SUM, group=sp_group)

    for param in model.parameters():
        if param.requires_grad:
            param.register_post_accumulate_grad_hook(sum_over_sp)


def setup_model(model, dp_size, sp_size):
    mesh = init_device_mesh("cuda", (dp_size, sp_size), mesh_dim_names=("dp", "sp"))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    register_sp_gradient_hooks(model, mesh["sp"].get_group())
    return model, mesh


def train_step(model, local_batch, num_tokens, optimizer, loss_sum):
    # local_batch: this rank's part of the sequence; num_tokens: labels of the whole sequence
    loss = loss_sum(model(local_batch["input_ids"]), local_batch["labels"]) / num_tokens
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
