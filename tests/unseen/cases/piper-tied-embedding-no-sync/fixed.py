"""GPT split over pipeline stages, with the output projection tied to the word embeddings."""
# uw-syfi/piper issue 13 (Megatron: _allreduce_word_embedding_grads): the copies start equal, and nothing sums their gradients.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state


class GPTStage(torch.nn.Module):
    def __init__(self, vocab_size, hidden_size, layers, share_embeddings_and_output_weights=True):
        super().__init__()
        self.pre_process = parallel_state.is_pipeline_first_stage()
        self.post_process = parallel_state.is_pipeline_last_stage()
        self.share_embeddings_and_output_weights = share_embeddings_and_output_weights
        self.layers = torch.nn.ModuleList(layers)
        if self.pre_process:
            self.word_embeddings = torch.nn.Parameter(torch.empty(vocab_size, hidden_size))
        if self.post_process:
            self.output_weight = torch.nn.Parameter(torch.zeros(vocab_size, hidden_size))
        self.initialize_word_embeddings()

    def shared_embedding_or_output_weight(self):
        if self.pre_process:
            return self.word_embeddings
        if self.post_process:
            return self.output_weight
        return None

    def initialize_word_embeddings(self):
        if not self.share_embeddings_and_output_weights:
            return
        if parallel_state.is_rank_in_embedding_group():
            weight = self.shared_embedding_or_output_weight()
            dist.all_reduce(weight.data, group=parallel_state.get_embedding_group())

    def forward(self, input_ids, hidden_states, labels):
        if self.pre_process:
            hidden_states = F.embedding(input_ids, self.word_embeddings)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        if self.post_process:
            logits = F.linear(hidden_states, self.output_weight)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return hidden_states


def allreduce_data_parallel_grads(model):
    group = parallel_state.get_data_parallel_group()
    for p in model.parameters():
        p.grad.div_(group.size())
        dist.all_reduce(p.grad, group=group)


def allreduce_word_embedding_grads(model):
    if parallel_state.is_rank_in_embedding_group():
        if model.share_embeddings_and_output_weights:
            weight = model.shared_embedding_or_output_weight()
            dist.all_reduce(weight.grad, group=parallel_state.get_embedding_group())


def train_step(model: GPTStage, optimizer, forward_backward, batch):
    optimizer.zero_grad()
    losses = forward_backward(model, batch)
    allreduce_data_parallel_grads(model)
    allreduce_word_embedding_grads(model)
    optimizer.step()
    return losses
