"""Tied embeddings across the first and the last pipeline stage."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


class Trainer:
    def __init__(self, args, model, optimizer):
        self.args, self.model, self.optimizer = args, model, optimizer

    def _embedding_weight(self):
        if mpu.is_pipeline_first_stage():
            return self.model.embedding.word_embeddings.weight
        return self.model.output_layer.weight

    def allreduce_embedding_grads(self):
        """First and last stage hold the same word embeddings: their gradients are summed."""
        if mpu.get_pipeline_model_parallel_world_size() == 1:
            return
        if not mpu.is_rank_in_embedding_group() or self.args.untie_embeddings_and_output_weights:
            return
        weight = self._embedding_weight()
        grad = weight.main_grad if self.args.gradient_accumulation_fusion else weight.grad
        dist.all_reduce(grad, group=mpu.get_embedding_group())

    def allreduce_dp_grads(self):
        group = mpu.get_data_parallel_group()
        size = mpu.get_data_parallel_world_size()
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.div_(size)
                dist.all_reduce(p.grad, group=group)

    def train_step(self, forward_backward, data_iterator):
        self.optimizer.zero_grad()
        losses = forward_backward(self.model, data_iterator)
        self.allreduce_dp_grads()
        self.allreduce_embedding_grads()
        success = self.optimizer.step()
        return losses, success
