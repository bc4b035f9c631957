"""Actor update under Ulysses sequence parallelism and FSDP.
volcengine/verl, utils/ulysses.py and dp_actor.py, from memory.
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, local_tensor, gather_dim, grad_scaler):
        ctx.gather_dim, ctx.grad_scaler = gather_dim, grad_scaler
        ctx.sp_world_size, ctx.sp_rank = dist.get_world_size(group), dist.get_rank(group)
        ctx.part_size = local_tensor.size(gather_dim)
        parts = [torch.empty_like(local_tensor) for _ in range(ctx.sp_world_size)]
        dist.all_gather(parts, local_tensor.contiguous(), group=group)
        return torch.cat(parts, dim=gather_dim)

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.grad_scaler:
            grad_output = grad_output * ctx.sp_world_size
        return None, grad_output.split(ctx.part_size, dim=ctx.gather_dim)[ctx.sp_rank].contiguous(), None, None


class DataParallelPPOActor:
    def __init__(self, actor_module, world_size, ulysses_size):
        self.mesh = init_device_mesh("cuda", (world_size // ulysses_size, ulysses_size), mesh_dim_names=("dp", "sp"))
        # parameters are sharded over all ranks, gradients are averaged over all ranks
        self.actor_module = FSDP(actor_module, process_group=dist.group.WORLD, use_orig_params=True)

    def _forward_micro_batch(self, micro_batch):
        """Every sp rank reads the same samples and runs its slice of the packed tokens."""
        sp_group = self.mesh["sp"].get_group()
        ids, targets = micro_batch["input_ids_rmpad"], micro_batch["input_ids_rmpad_rolled"]
        part = ids.size(1) // self.mesh["sp"].size()
        lo = self.mesh["sp"].get_local_rank() * part
        logits = self.actor_module(input_ids=ids[:, lo:lo + part], use_cache=False).logits
        log_probs = torch.log_softmax(logits.float(), dim=-1)
        log_probs = log_probs.gather(-1, targets[:, lo:lo + part].unsqueeze(-1)).squeeze(-1)
        return Gather.apply(sp_group, log_probs, 1, False)  # BUG

    def update_policy(self, micro_batches, optimizer, policy_loss_fn):
        for micro_batch in micro_batches:
            log_prob = self._forward_micro_batch(micro_batch)
            loss = policy_loss_fn(log_prob, micro_batch) / len(micro_batches)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
