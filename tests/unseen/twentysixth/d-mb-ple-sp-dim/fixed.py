# Megatron-Bridge fcbabe784 (#5385)
"""Gemma per-layer embeddings: token part plus a projection of the decoder input."""
import torch
from megatron.core import tensor_parallel


def attach_ple_modules(model, config, vocab, ple_dim):
    n = config.num_layers * ple_dim
    tp_group = model.pg_collection.tp
    model.per_layer_embedding = tensor_parallel.VocabParallelEmbedding(
        vocab, n, config=config, init_method=config.init_method, tp_group=tp_group
    )
    model.per_layer_model_proj = tensor_parallel.ColumnParallelLinear(
        config.hidden_size, n, config=config, init_method=config.init_method,
        bias=False, gather_output=True, tp_group=tp_group,
    )
    model.per_layer_proj_norm = torch.nn.RMSNorm(ple_dim)
    model.per_layer_proj_norm.weight.sequence_parallel = config.sequence_parallel


def compute_per_layer_inputs(model, input_ids, decoder_input, ple_dim):
    # decoder_input: [s, b, h], or [s / tp, b, h] under sequence parallelism
    config, tp_group = model.config, model.pg_collection.tp
    b, n_layers = input_ids.shape[0], config.num_layers
    scatter = tensor_parallel.scatter_to_sequence_parallel_region
    tok_emb = model.per_layer_embedding(input_ids) * ple_dim**0.5
    if config.sequence_parallel:
        tok_emb = scatter(tok_emb.transpose(0, 1), group=tp_group).transpose(0, 1)
    s_local = tok_emb.shape[1]
    tok_emb = tok_emb.reshape(b, s_local, n_layers, ple_dim)

    mdl_proj, _ = model.per_layer_model_proj(decoder_input)
    if config.sequence_parallel:
        mdl_proj = scatter(mdl_proj, group=tp_group)
    mdl_proj = mdl_proj.transpose(0, 1).contiguous()
    mdl_proj = mdl_proj * config.hidden_size**-0.5
    mdl_proj = mdl_proj.reshape(b, s_local, n_layers, ple_dim)
    mdl_proj = model.per_layer_proj_norm(mdl_proj)
    return (mdl_proj + tok_emb) * 2.0**-0.5
