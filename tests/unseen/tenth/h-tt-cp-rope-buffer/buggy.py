"""Training step with context parallelism (torchtitan)."""
import torch
from torch import nn
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method


class Transformer(nn.Module):
    def __init__(self, embeddings, layers, norm, output, freqs_cis):
        super().__init__()
        self.tok_embeddings, self.layers, self.norm, self.output = embeddings, layers, norm, output
        self.register_buffer("freqs_cis", freqs_cis, persistent=False)  # (seq_len, head_dim // 2)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        freqs_cis = self.freqs_cis[: tokens.shape[1]]
        for layer in self.layers:
            h = layer(h, freqs_cis)
        return self.output(self.norm(h))


def train_step(model, optimizer, cp_mesh, inputs, labels):
    # model is sharded with fully_shard over the dp x cp ranks
    set_rotate_method("allgather")
    with context_parallel(
        cp_mesh,
        buffers=[inputs, labels],  # BUG: each rank applies the rotations of the first positions
        buffer_seq_dims=[1, 1],
        no_restore_buffers={inputs, labels},
    ):
        pred = model(inputs)
        loss = nn.functional.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))
        del pred
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
