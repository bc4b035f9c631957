"""GPT-NeoX style feed-forward stack with Megatron sequence parallelism."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

_MODEL_PARALLEL_GROUP = None


def initialize_model_parallel(model_parallel_size):
    global _MODEL_PARALLEL_GROUP
    world, rank = dist.get_world_size(), dist.get_rank()
    assert world == model_parallel_size, "this example runs one model replica"
    _MODEL_PARALLEL_GROUP = dist.new_group(list(range(world)))
    return rank


def get_model_parallel_group():
    return _MODEL_PARALLEL_GROUP


def get_model_parallel_world_size():
    return dist.get_world_size(_MODEL_PARALLEL_GROUP)


def get_model_parallel_rank():
    return dist.get_rank(_MODEL_PARALLEL_GROUP)


def _gather_first_dim(x):
    size = get_model_parallel_world_size()
    out = x.new_empty((x.size(0) * size, *x.shape[1:]))
    dist.all_gather_into_tensor(out, x.contiguous(), group=get_model_parallel_group())
    return out


def _reduce_scatter_first_dim(x):
    size = get_model_parallel_world_size()
    out = x.new_empty((x.size(0) // size, *x.shape[1:]))
    dist.reduce_scatter_tensor(out, x.contiguous(), group=get_model_parallel_group())
    return out


class _GatherFromSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _gather_first_dim(x)

    @staticmethod
    def backward(ctx, grad):
        return _reduce_scatter_first_dim(grad)


class _ReduceScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _reduce_scatter_first_dim(x)

    @staticmethod
    def backward(ctx, grad):
        return _gather_first_dim(grad)


def reduce_weight_grads_from_model_parallel_region(grad):
    """Hook for weights that every rank applies to its own slice of the sequence."""
    if get_model_parallel_world_size() == 1:
        return grad
    # reduce in fp32, the tensors are small
    reduced = grad.float().contiguous().clone()
    dist.all_reduce(reduced, op=dist.ReduceOp.SUM, group=get_model_parallel_group())
    return (reduced / get_model_parallel_world_size()).to(grad.dtype)  # BUG


class ParallelMLP(nn.Module):
    def __init__(self, hidden_size, ffn_size):
        super().__init__()
        size, rank = get_model_parallel_world_size(), get_model_parallel_rank()
        full_in = torch.empty(ffn_size, hidden_size)
        full_out = torch.empty(hidden_size, ffn_size)
        nn.init.normal_(full_in, std=0.02)
        nn.init.normal_(full_out, std=0.02)
        self.dense_h_to_4h = nn.Parameter(full_in.chunk(size, dim=0)[rank].clone())
        self.dense_4h_to_h = nn.Parameter(full_out.chunk(size, dim=1)[rank].clone())

    def forward(self, x):
        x = _GatherFromSequenceParallelRegion.apply(x)
        x = F.linear(F.gelu(F.linear(x, self.dense_h_to_4h)), self.dense_4h_to_h)
        return _ReduceScatterToSequenceParallelRegion.apply(x)


class ParallelTransformerLayer(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(hidden_size)
        self.mlp = ParallelMLP(hidden_size, 4 * hidden_size)

    def forward(self, x):
        return x + self.mlp(self.input_layernorm(x))


def mark_norms_for_sequence_parallel_grad_sync(model):
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            for param in module.parameters(recurse=False):
                param.register_hook(reduce_weight_grads_from_model_parallel_region)


def main(seq=128, batch=4, hidden_size=256, num_layers=4, iters=20):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    rank = initialize_model_parallel(dist.get_world_size())
    size = get_model_parallel_world_size()

    torch.manual_seed(1234)
    model = nn.Sequential(*[ParallelTransformerLayer(hidden_size) for _ in range(num_layers)], nn.LayerNorm(hidden_size))
    model.to(device)
    mark_norms_for_sequence_parallel_grad_sync(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    generator = torch.Generator().manual_seed(99)
    for it in range(iters):
        inputs = torch.randn(seq, batch, hidden_size, generator=generator)
        target = torch.randn(seq, batch, hidden_size, generator=generator)
        local_inputs = inputs.chunk(size, dim=0)[rank].to(device)
        local_target = target.chunk(size, dim=0)[rank].to(device)
        output = model(local_inputs)
        loss = F.mse_loss(output, local_target, reduction="sum") / target.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, group=get_model_parallel_group())
        if rank == 0:
            print(f"iteration {it} loss {total.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
