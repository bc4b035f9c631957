# Reduced from transformers distributed/tensor_parallel.py (huggingface/transformers pull request 48205, read).
# Expert parallelism: tokens and router are replicated, each rank runs its own experts and the outputs
# are all-reduced. The router hook zeroes the score slots of experts on other ranks.
# What happens: the score gradient of a rank covers its own experts only; router and all layers
# below miss the other ranks' share.
import torch
import torch.distributed as dist


class _AllReduceBackward(torch.autograd.Function):
    """Identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous().clone()
        dist.all_reduce(grad_output, op=dist.ReduceOp.SUM, group=ctx.group)
        return grad_output, None


class _AllReduceForward(torch.autograd.Function):
    """All-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, op=dist.ReduceOp.SUM, group=group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class RouterParallel:
    def transform_output_post_forward(self, module, output, mesh):
        ep_rank, ep_size = mesh.get_local_rank(), mesh.size()
        num_local_experts = module.num_experts // ep_size
        router_logits, router_scores, router_indices = output
        local = (router_indices // num_local_experts) == ep_rank
        router_scores = router_scores * local  # BUG
        # num_local_experts is the sentinel for slots of other ranks
        router_indices = torch.where(local, router_indices % num_local_experts, num_local_experts)
        return router_logits, router_scores, router_indices


class MoeTensorParallelExperts:
    def transform_inputs_pre_forward(self, module, args, mesh):
        hidden_states, top_k_index, top_k_weights = args
        return _AllReduceBackward.apply(hidden_states, mesh.get_group()), top_k_index, top_k_weights

    def transform_output_post_forward(self, module, output, mesh):
        return _AllReduceForward.apply(output, mesh.get_group())
