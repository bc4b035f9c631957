"""Process group of the tied word embeddings, pipeline with multi-token prediction.

Reduced from NVIDIA-NeMo/Megatron-Bridge d4dd7a3147 (fix(training): include MTP stages in
embedding groups, #5380).
"""
import torch


def get_embedding_ranks(pp_ranks, model_config):
    """Ranks of one pipeline which hold a copy of the embedding: first stage, head, MTP layers."""
    embedding_ranks = [pp_ranks[0]]
    if len(pp_ranks) > 1 and model_config.share_embeddings_and_output_weights:
        embedding_ranks.append(pp_ranks[-1])
    return embedding_ranks  # BUG: a stage with an MTP layer embeds tokens with its own copy


def build_embedding_group(all_pp_ranks, model_config):
    embedding_group = None
    for pp_ranks in all_pp_ranks:
        ranks = get_embedding_ranks(pp_ranks, model_config)
        group = torch.distributed.new_group(ranks)
        if torch.distributed.get_rank() in ranks:
            embedding_group = group
    return embedding_group


def allreduce_word_embedding_grads(model, embedding_group):
    if embedding_group is not None and embedding_group.size() > 1:
        weight = model.shared_embedding_or_output_weight()
        torch.distributed.all_reduce(weight.main_grad, group=embedding_group)
