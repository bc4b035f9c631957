"""Finishing the gradients of a pipelined GPT whose input and output embeddings are tied."""
import torch
import torch.distributed as dist

_EMBEDDING_GROUP = None
_POSITION_EMBEDDING_GROUP = None


def initialize_embedding_groups(pipeline_groups_ranks):
    """One group for each pipeline: its first and its last stage."""
    global _EMBEDDING_GROUP, _POSITION_EMBEDDING_GROUP
    for ranks in pipeline_groups_ranks:
        ends = [ranks[0], ranks[-1]] if len(ranks) > 1 else ranks
        group = dist.new_group(ends)
        if dist.get_rank() in ends:
            _EMBEDDING_GROUP = group
        group = dist.new_group(ranks[:1])
        if dist.get_rank() == ranks[0]:
            _POSITION_EMBEDDING_GROUP = group


class StageModel(torch.nn.Module):
    def __init__(self, config, layers, pre_process, post_process):
        super().__init__()
        self.pre_process, self.post_process = pre_process, post_process
        self.layers = torch.nn.ModuleList(layers)
        if pre_process or post_process:
            self.word_embeddings = torch.nn.Embedding(config.vocab_size, config.hidden_size)
            torch.nn.init.normal_(self.word_embeddings.weight, std=config.init_method_std)
        if post_process:
            self.final_norm = torch.nn.LayerNorm(config.hidden_size)
        self.initialize_word_embeddings()

    def initialize_word_embeddings(self):
        """The last stage starts from zeros, so that the sum is the first stage's weight."""
        if not (self.pre_process or self.post_process) or (self.pre_process and self.post_process):
            return
        weight = self.word_embeddings.weight.data
        if self.post_process:
            weight.fill_(0)
        weight = weight.cuda()
        dist.all_reduce(weight, group=_EMBEDDING_GROUP)
        self.word_embeddings.weight.data = weight

    def shared_embedding_or_output_weight(self):
        return self.word_embeddings.weight

    def forward(self, inputs):
        hidden = self.word_embeddings(inputs) if self.pre_process else inputs
        for layer in self.layers:
            hidden = layer(hidden)
        if self.post_process:
            return torch.nn.functional.linear(
                self.final_norm(hidden), self.shared_embedding_or_output_weight()
            )
        return hidden


def _allreduce_data_parallel_grads(model, dp_group):
    for param in model.parameters():
        if param.grad is None:
            param.grad = torch.zeros_like(param)
        dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=dp_group)


def _allreduce_embedding_grads(model):
    if (model.pre_process or model.post_process) and dist.get_world_size(_EMBEDDING_GROUP) > 1:
        weight = model.shared_embedding_or_output_weight()
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG, group=_EMBEDDING_GROUP)  # BUG


def finalize_model_grads(model, dp_group):
    _allreduce_data_parallel_grads(model, dp_group)
    _allreduce_embedding_grads(model)


def train_step(forward_backward_func, data_iterator, model, optimizer, args, dp_group):
    optimizer.zero_grad()
    losses = forward_backward_func(
        data_iterator, model, num_microbatches=args.num_microbatches, forward_only=False
    )
    finalize_model_grads(model, dp_group)
    optimizer.step()
    return torch.stack(losses).mean() if losses else None
