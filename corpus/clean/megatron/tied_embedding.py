"""Word embeddings shared by the first and the last pipeline stage: equal at the start, gradients summed at the end of each step."""

import torch
from megatron.core import parallel_state, tensor_parallel


class LanguageModel(torch.nn.Module):
    def __init__(self, config, decoder, pre_process, post_process):
        super().__init__()
        self.config = config
        self.pre_process = pre_process
        self.post_process = post_process
        self.decoder = decoder
        self.share_embeddings_and_output_weights = config.share_embeddings_and_output_weights
        if self.pre_process:
            self.word_embeddings = tensor_parallel.VocabParallelEmbedding(
                num_embeddings=config.vocab_size, embedding_dim=config.hidden_size, init_method=config.init_method, config=config
            )
        if self.post_process:
            self.output_layer = tensor_parallel.ColumnParallelLinear(
                config.hidden_size, config.vocab_size, config=config, init_method=config.init_method, bias=False,
                gather_output=False, skip_weight_param_allocation=self.pre_process and self.share_embeddings_and_output_weights,
            )
        if self.share_embeddings_and_output_weights and (self.pre_process or self.post_process):
            self.setup_embeddings_and_output_layer()

    def shared_embedding_or_output_weight(self):
        if self.pre_process:
            return self.word_embeddings.weight
        if self.post_process:
            return self.output_layer.weight
        return None

    def setup_embeddings_and_output_layer(self):
        if self.pre_process:
            self.shared_embedding_or_output_weight().shared_embedding = True
        if self.post_process and not self.pre_process:
            self.output_layer.weight.data.fill_(0)
            self.output_layer.weight.shared = True
            self.output_layer.weight.shared_embedding = True
        if parallel_state.is_rank_in_embedding_group():
            weight = self.shared_embedding_or_output_weight()
            weight.data = weight.data.cuda()
            torch.distributed.all_reduce(weight.data, group=parallel_state.get_embedding_group())

    def forward(self, tokens, labels=None, hidden_states=None):
        if self.pre_process:
            hidden_states = self.word_embeddings(tokens).transpose(0, 1).contiguous()
            if self.config.sequence_parallel:
                hidden_states = tensor_parallel.scatter_to_sequence_parallel_region(hidden_states)
        hidden_states = self.decoder(hidden_states)
        if not self.post_process:
            return hidden_states
        output_weight = self.shared_embedding_or_output_weight() if self.share_embeddings_and_output_weights else None
        logits, _ = self.output_layer(hidden_states, weight=output_weight)
        if labels is None:
            return logits
        return tensor_parallel.vocab_parallel_cross_entropy(logits.float(), labels.transpose(0, 1).contiguous())


def allreduce_word_embedding_grads(model, config):
    if not parallel_state.is_rank_in_embedding_group(ignore_virtual=True):
        return
    if parallel_state.get_pipeline_model_parallel_world_size() <= 1:
        return
    model_module = model[0] if parallel_state.is_pipeline_first_stage(ignore_virtual=True) else model[-1]
    if model_module.share_embeddings_and_output_weights:
        weight = model_module.shared_embedding_or_output_weight()
        grad = weight.main_grad if hasattr(weight, "main_grad") else weight.grad
        torch.distributed.all_reduce(grad, group=parallel_state.get_embedding_group())
