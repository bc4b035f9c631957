"""Tied embeddings over pipeline stages: a fallback for models of one stage, and float32 main gradients kept beside the parameter."""

import torch
from megatron import mpu


def head_weight(model):
    return model.embedding.word_embeddings.weight if hasattr(model, "embedding") else model.word_embeddings_for_head.weight


class StageModel(torch.nn.Module):
    def __init__(self, embedding, layers, vocab_rows, hidden):
        super().__init__()
        if mpu.is_pipeline_first_stage():
            self.embedding = embedding
        self.layers = layers
        if mpu.is_pipeline_last_stage() and not mpu.is_pipeline_first_stage():
            self.word_embeddings_for_head = mpu.VocabParallelEmbedding(vocab_rows, hidden)
            self.word_embeddings_for_head.weight.data.fill_(0)
            self.word_embeddings_for_head.weight.shared = True

    def initialize_word_embeddings(self):
        """Zero on the last stage plus the values of the first one: both start equal."""
        if mpu.get_pipeline_model_parallel_world_size() == 1:
            return
        if mpu.is_pipeline_first_stage() or mpu.is_pipeline_last_stage():
            torch.distributed.all_reduce(head_weight(self).data, group=mpu.get_embedding_group())


def reduce_embedding_grads(model, fp32_residual):
    if mpu.get_pipeline_model_parallel_world_size() == 1:
        return
    if not (mpu.is_pipeline_first_stage() or mpu.is_pipeline_last_stage()):
        return
    weight = head_weight(model)
    if fp32_residual:
        work = torch.distributed.all_reduce(weight.main_grad, group=mpu.get_embedding_group(), async_op=True)
    else:
        work = torch.distributed.all_reduce(weight.grad, group=mpu.get_embedding_group(), async_op=True)
    work.wait()


def grad_norm(model, parameters):
    """The shared copy counts once, a parameter that is whole on all tensor-parallel ranks counts on the first."""
    total = torch.zeros((), device="cuda")
    for param in parameters:
        if param.grad is None or getattr(param, "shared", False):
            continue
        if getattr(param, "tensor_model_parallel", False) or mpu.get_tensor_model_parallel_rank() == 0:
            total += param.grad.float().norm() ** 2
    torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM, group=mpu.get_model_parallel_group())
    return total.sqrt()
