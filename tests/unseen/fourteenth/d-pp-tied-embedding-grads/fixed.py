# Reduces GPT-NeoX/Megatron pipelines with tied embeddings: the first and the last stage each hold a copy of the word
# embedding, and each applies only the gradient of its own use.
import torch
import torch.distributed as dist


def embedding_group(pp_ranks_of_all_pipelines):
    mine = None
    for ranks in pp_ranks_of_all_pipelines:
        group = dist.new_group([ranks[0], ranks[-1]])
        if dist.get_rank() in (ranks[0], ranks[-1]):
            mine = group
    return mine


class PipelineStage(torch.nn.Module):
    def __init__(self, layers, is_first, is_last, vocab, hidden, embed_group):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.is_first, self.is_last, self.embed_group = is_first, is_last, embed_group
        if is_first or is_last:
            self.word_embeddings = torch.nn.Parameter(torch.empty(vocab, hidden).normal_(std=0.02))

    def tie(self):
        """Start from equal copies."""
        if self.is_first or self.is_last:
            dist.broadcast(self.word_embeddings.data, src=dist.get_global_rank(self.embed_group, 0),
                           group=self.embed_group)

    def forward(self, x):
        if self.is_first:
            x = torch.nn.functional.embedding(x, self.word_embeddings)
        for layer in self.layers:
            x = layer(x)
        return torch.nn.functional.linear(x, self.word_embeddings) if self.is_last else x


def finish_step(stage, optimizer, dp_group):
    for p in stage.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
    if stage.is_first or stage.is_last:
        dist.all_reduce(stage.word_embeddings.grad, group=stage.embed_group)
    optimizer.step()
    optimizer.zero_grad()
