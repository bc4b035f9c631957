"""Diffusion transformer on a pipeline: every stage computes the conditioning itself."""
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from megatron.core import parallel_state


class DiTStage(torch.nn.Module):
    def __init__(self, t_embedder, layers, x_embedder=None, final_layer=None):
        super().__init__()
        self.x_embedder, self.layers, self.final_layer = x_embedder, layers, final_layer
        self.t_embedder = t_embedder  # same weights on all stages
        for p in self.t_embedder.parameters():
            setattr(p, "pipeline_parallel", True)

    def forward(self, x, timesteps):
        c = self.t_embedder(timesteps)
        if self.x_embedder is not None:
            x = self.x_embedder(x)
        for layer in self.layers:
            x = layer(x, c)
        return self.final_layer(x, c) if self.final_layer is not None else x


def allreduce_marked_grads(model, mark, group):
    grads = [p.main_grad for m in model for p in m.parameters() if getattr(p, mark, False)]
    if grads:
        coalesced = _flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=group)
        for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)


def finalize_model_grads(model):
    for chunk in model:
        chunk.finish_grad_sync()
    tp_group = parallel_state.get_tensor_model_parallel_group()
    allreduce_marked_grads(model, "sequence_parallel", tp_group)
    pp_group = parallel_state.get_pipeline_model_parallel_group()
    allreduce_marked_grads(model, "pipeline_parallel", pp_group)
