"""Gradients of an embedding tied to the output projection of another pipeline stage."""
import torch
import torch.distributed as dist


class PipelineModel(torch.nn.Module):
    def __init__(self, vocab, hidden, pp_rank, pp_size, tied_group):
        super().__init__()
        self.is_first, self.is_last = pp_rank == 0, pp_rank == pp_size - 1
        self.tied_group = tied_group  # first and last pipeline rank
        if self.is_first or self.is_last:
            self.token_embedding = torch.nn.Parameter(torch.empty(vocab, hidden))

    def embed(self, ids):
        return torch.nn.functional.embedding(ids, self.token_embedding)  # first stage

    def lm_head(self, hidden_states):
        return torch.nn.functional.linear(hidden_states, self.token_embedding)  # last stage


def sync_tied_weights_gradients(model):
    # one parameter with two uses: each stage holds the gradient of its own use
    if model.is_first or model.is_last:
        grad = model.token_embedding.grad
        dist.all_reduce(grad, op=dist.ReduceOp.SUM, group=model.tied_group)
