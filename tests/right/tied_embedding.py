"""First and last stage share the embedding: their gradients are added over the embedding group."""
import torch
import torch.distributed as dist


class Stage(torch.nn.Module):
    def __init__(self, layers, vocab, hidden, pre, post):
        super().__init__()
        self.pre, self.post = pre, post
        if pre or post:
            self.word = torch.nn.Embedding(vocab, hidden)
            self.word.weight.shared = post and not pre
            if post and not pre:
                self.word.weight.data.fill_(0)
        self.layers = layers

    def forward(self, x):
        if self.pre:
            x = self.word(x)
        x = self.layers(x)
        return torch.nn.functional.linear(x, self.word.weight) if self.post else x


def build_embedding_group(pp_ranks_of_all):
    mine = None
    for ranks in pp_ranks_of_all:
        ends = [ranks[0], ranks[-1]] if len(ranks) > 1 else ranks
        g = dist.new_group(ends)
        if dist.get_rank() in ends:
            mine = g
    return mine


def tie(stage, embedding_group):
    if embedding_group is not None:
        # the copy of the last stage is zero, so the sum is the first stage's
        dist.all_reduce(stage.word.weight.data, group=embedding_group)


def finish(stage, dp_group, embedding_group, pp_size):
    n = dist.get_world_size(dp_group)
    for p in stage.parameters():
        p.grad.div_(n)
        dist.all_reduce(p.grad, group=dp_group)
    if pp_size > 1 and embedding_group is not None:
        dist.all_reduce(stage.word.weight.grad, group=embedding_group)


def train(stage, schedule, loader, dp_group, embedding_group, pp_size):
    optimizer = torch.optim.AdamW(stage.parameters())
    tie(stage, embedding_group)
    for batch in loader:
        schedule(stage, batch)
        finish(stage, dp_group, embedding_group, pp_size)
        optimizer.step()
        optimizer.zero_grad()
