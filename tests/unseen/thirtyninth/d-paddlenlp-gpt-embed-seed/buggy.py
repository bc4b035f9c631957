"""GPT embeddings with two random streams: one shared and one per tensor-parallel rank."""
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from fleet_gpt.mp_layers import ScatterToSequence, VocabParallelEmbedding


class RNGStatesTracker:
    def __init__(self):
        self.states = {}

    def add(self, name, seed):
        saved = torch.cuda.get_rng_state()
        torch.cuda.manual_seed(seed)
        self.states[name] = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(saved)

    @contextlib.contextmanager
    def rng_state(self, name):
        saved = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(self.states[name])
        try:
            yield
        finally:
            self.states[name] = torch.cuda.get_rng_state()
            torch.cuda.set_rng_state(saved)


TRACKER = RNGStatesTracker()


def set_hybrid_parallel_seed(basic_seed, dp_rank, mp_rank):
    TRACKER.add("global_seed", basic_seed + dp_rank)
    TRACKER.add("local_seed", basic_seed + 1024 + dp_rank * 128 + mp_rank)


class GPTEmbeddings(nn.Module):
    def __init__(self, config, mp_group):
        super().__init__()
        self.sequence_parallel = config.sequence_parallel
        self.mp_group = mp_group
        self.word_embeddings = VocabParallelEmbedding(config.vocab_size, config.hidden_size, mp_group)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids, position_ids):
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        if self.sequence_parallel:
            # [b, s, h] -> [s / mp, b, h]; backward gathers over the group
            embeddings = ScatterToSequence.apply(embeddings.transpose(0, 1), self.mp_group)
        with TRACKER.rng_state("global_seed"):  # BUG
            return self.dropout(embeddings)
