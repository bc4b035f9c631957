"""Training step with PyTorch's context_parallel."""
import torch
from torch.distributed.tensor.experimental import context_parallel


class Attention(torch.nn.Module):
    def __init__(self, wqkv, wo, heads, dim):
        super().__init__()
        self.wqkv, self.wo, self.heads, self.dim = wqkv, wo, heads, dim

    def forward(self, x, freqs_cis):
        b, s, _ = x.shape
        q, k, v = self.wqkv(x).view(b, s, 3, self.heads, self.dim).unbind(2)
        rot = freqs_cis[:s].view(1, s, 1, -1)
        q, k = (
            torch.view_as_real(torch.view_as_complex(t.float().unflatten(-1, (-1, 2))) * rot).flatten(3).type_as(v)
            for t in (q, k)
        )
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).flatten(2))


def train_step(model, cp_mesh, ids, labels, loss_fn, optimizer):
    # model.freqs_cis: [seq_len, dim/2], as long as ids, handed to every attention layer
    with context_parallel(
        cp_mesh,
        buffers=[ids, labels],  # BUG
        buffer_seq_dims=[1, 1],
        no_restore_buffers={ids, labels},
    ):
        loss = loss_fn(model(ids).flatten(0, 1), labels.flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
