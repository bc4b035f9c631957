"""Long document perplexity for a linear attention model, context parallel over segments.

A document is read segment by segment; inside a segment every context parallel
rank scans its own chunk and the recurrent states are chained afterwards.
"""
import argparse
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def build_groups(cp_size):
    """cp groups are strided over the data parallel replicas: rank = cp_rank * dp_size + dp_rank."""
    world, rank = dist.get_world_size(), dist.get_rank()
    dp_size = world // cp_size
    cp_group = None
    for replica in range(dp_size):
        ranks = list(range(replica, world, dp_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            cp_group = group
    return cp_group, rank % dp_size, dp_size


def local_scan(q, k, v, decay, state):
    """Decayed linear attention over one chunk, returns outputs and the final state."""
    outputs = []
    for t in range(q.size(1)):
        state = state * decay[:, t, None, None] + k[:, t, :, None] * v[:, t, None, :]
        outputs.append(torch.einsum("bk,bkv->bv", q[:, t], state))
    return torch.stack(outputs, dim=1), state


def exclusive_chain_state(local_state, local_decay, initial_state, group):
    """State that enters this rank's chunk, from the summaries of the preceding ranks."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    states = [torch.empty_like(local_state) for _ in range(size)]
    decays = [torch.empty_like(local_decay) for _ in range(size)]
    dist.all_gather(states, local_state.contiguous(), group=group)
    dist.all_gather(decays, local_decay.contiguous(), group=group)
    state = initial_state
    for state_i, decay_i in zip(states[:rank], decays[:rank]):
        state = state * decay_i[:, None, None] + state_i
    return state


def broadcast_chain_final_state(final_state, group):
    """Every rank continues the next segment from the end of this one."""
    last = dist.get_global_rank(group, dist.get_world_size(group) - 1)
    final_state = final_state.contiguous().clone()
    dist.broadcast(final_state, src=last, group=group)
    return final_state


class LinearAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.v, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.decay = nn.Linear(dim, 1)

    def forward(self, x, state, group):
        q, k, v = self.q(x), F.normalize(self.k(x), dim=-1), self.v(x)
        decay = torch.sigmoid(self.decay(x)).squeeze(-1)
        zero = torch.zeros_like(state)
        _, summary = local_scan(q, k, v, decay, zero)
        entering = exclusive_chain_state(summary, decay.prod(dim=1), state, group)
        out, final = local_scan(q, k, v, decay, entering)
        return self.o(out), broadcast_chain_final_state(final, group)


class Model(nn.Module):
    def __init__(self, vocab, dim, n_layers):
        super().__init__()
        self.dim = dim
        self.embed = nn.Embedding(vocab, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(n_layers))
        self.layers = nn.ModuleList(LinearAttention(dim) for _ in range(n_layers))
        self.head = nn.Linear(dim, vocab, bias=False)

    def init_states(self, batch, device):
        return [torch.zeros(batch, self.dim, self.dim, device=device) for _ in self.layers]

    def forward(self, tokens, states, group):
        x = self.embed(tokens)
        new_states = []
        for norm, layer, state in zip(self.norms, self.layers, states):
            out, state = layer(norm(x), state, group)
            x = x + out
            new_states.append(state)
        return self.head(x), new_states


@torch.no_grad()
def document_nll(model, document, segment, group):
    """Sum of token losses of one document, already reduced over the cp group."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    inputs, labels = document[:, :-1], document[:, 1:]
    states = model.init_states(document.size(0), document.device)
    total = torch.zeros((), device=document.device)
    for start in range(0, inputs.size(1), segment):
        chunk = inputs[:, start : start + segment].chunk(size, dim=1)[rank]
        target = labels[:, start : start + segment].chunk(size, dim=1)[rank]
        logits, states = model(chunk, states, group)
        total += F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum")
    dist.all_reduce(total, group=group)
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cp-size", type=int, default=2)
    parser.add_argument("--segment", type=int, default=64)
    parser.add_argument("--num-documents", type=int, default=4)
    args = parser.parse_args()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    group, dp_rank, dp_size = build_groups(args.cp_size)
    torch.manual_seed(0)
    model = Model(vocab=256, dim=32, n_layers=2).to(device).eval()

    generator = torch.Generator().manual_seed(1)
    documents = torch.randint(256, (args.num_documents, 1, 4 * args.segment + 1), generator=generator).to(device)
    totals = torch.zeros(2, device=device)
    for document in documents[dp_rank::dp_size]:
        totals[0] += document_nll(model, document, args.segment, group)
        totals[1] += document.numel() - document.size(0)
    # every replica is present cp_size times, which cancels in the ratio
    dist.all_reduce(totals)
    if dist.get_rank() == 0:
        print(f"perplexity {math.exp((totals[0] / totals[1]).item()):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
