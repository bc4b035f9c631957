"""Actor update with Ulysses sequence parallelism on FSDP (verl)."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, local_tensor, dim, grad_scaler):
        ctx.dim, ctx.grad_scaler = dim, grad_scaler
        ctx.sp_world_size, ctx.sp_rank = dist.get_world_size(group), dist.get_rank(group)
        ctx.part_size = local_tensor.size(dim)
        output = [torch.empty_like(local_tensor) for _ in range(ctx.sp_world_size)]
        dist.all_gather(output, local_tensor.contiguous(), group=group)
        return torch.cat(output, dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.grad_scaler:
            grad_output = grad_output * ctx.sp_world_size
        return None, grad_output.split(ctx.part_size, dim=ctx.dim)[ctx.sp_rank].contiguous(), None, None


def gather_outputs_and_unpad(x, gather_dim, padding_size, group, grad_scaler=True):
    x = Gather.apply(group, x, gather_dim, grad_scaler)
    return x.narrow(gather_dim, 0, x.size(gather_dim) - padding_size)


class DataParallelPPOActor:
    def __init__(self, actor_module, optimizer_cls, world_size, sp_group):
        mesh = init_device_mesh("cuda", (world_size,), mesh_dim_names=("fsdp",))
        self.actor_module = fully_shard(actor_module, mesh=mesh)
        self.actor_optimizer = optimizer_cls(self.actor_module.parameters())
        self.sp_group = sp_group

    def update_policy(self, micro_batch, pad_size, policy_loss_fn):
        # input_ids_rmpad: this sp rank's slice; the loss sees the whole packed sequence
        log_probs = self.actor_module(micro_batch["input_ids_rmpad"])
        log_probs = gather_outputs_and_unpad(log_probs, 0, pad_size, self.sp_group, grad_scaler=False)  # BUG: FSDP averages over sp as well
        loss = policy_loss_fn(log_probs, micro_batch["old_log_probs"], micro_batch["advantages"])
        loss.backward()
        self.actor_optimizer.step()
        self.actor_optimizer.zero_grad()
