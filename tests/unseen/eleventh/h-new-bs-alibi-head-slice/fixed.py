"""ALiBi position bias for tensor-parallel attention."""
import math

import torch
from megatron import mpu

# spmd: mesh dense = dp, tp


def get_slopes(n):
    start = 2 ** (-(2 ** -(math.log2(n) - 3)))
    return [start * start ** i for i in range(n)]


# spmd: -> {tp: S(0)}
def build_alibi_tensor(max_seq_len, num_attention_heads):
    slopes = torch.tensor(get_slopes(num_attention_heads))
    positions = torch.arange(max_seq_len).unsqueeze(0).unsqueeze(0)
    alibi = slopes.unsqueeze(1).unsqueeze(1) * positions.expand(num_attention_heads, -1, -1)
    # select the heads of this tensor-parallel rank
    tp_world_size = mpu.get_tensor_model_parallel_world_size()
    tp_index = mpu.get_tensor_model_parallel_rank()
    return alibi.reshape((tp_world_size, -1, *alibi.shape[1:]))[tp_index]


# spmd: query: {tp: S(1)}, key: {tp: S(1)}, alibi: {tp: S(0)} -> {tp: S(1)}
def attention_scores(query, key, alibi, norm_factor):
    # query, key: [b, np/tp, s, hn]
    np_local, sk = query.size(1), key.size(2)
    scores = torch.matmul(query, key.transpose(-1, -2)) / norm_factor
    return scores + alibi[:np_local, :, :sk]


def alibi_for_rank(args):
    assert args.num_attention_heads % mpu.get_tensor_model_parallel_world_size() == 0
    return build_alibi_tensor(args.seq_length, args.num_attention_heads).to(args.params_dtype)
