"""Tensor parallel Mamba-2 mixer (reference scan) with the grouped, gated RMSNorm."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class _CopyInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _ReduceOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class RMSNormGated(nn.Module):
    """Normalizes over consecutive groups of `group_size` features."""

    def __init__(self, hidden_size, group_size, eps=1e-5):
        super().__init__()
        assert hidden_size % group_size == 0
        self.group_size, self.eps = group_size, eps
        self.weight = nn.Parameter(torch.ones(hidden_size))

    def forward(self, x, z):
        x = x * F.silu(z)
        grouped = x.unflatten(-1, (-1, self.group_size))
        grouped = grouped * torch.rsqrt(grouped.square().mean(dim=-1, keepdim=True) + self.eps)
        return grouped.flatten(-2) * self.weight


class Mamba2(nn.Module):
    def __init__(self, d_model, d_state, headdim, ngroups, process_group, expand=2):
        super().__init__()
        self.process_group = process_group
        self.world_size, rank = dist.get_world_size(process_group), dist.get_rank(process_group)
        d_inner = expand * d_model
        assert ngroups % self.world_size == 0 and d_inner % headdim == 0
        self.headdim, self.d_state = headdim, d_state
        self.d_ssm = d_inner // self.world_size
        self.ngroups = ngroups // self.world_size
        self.nheads = self.d_ssm // headdim

        def column(rows):
            return nn.Parameter((torch.randn(rows, d_model) * 0.05).chunk(self.world_size)[rank].clone())

        nheads = d_inner // headdim
        self.in_z, self.in_x = column(d_inner), column(d_inner)
        self.in_B, self.in_C = column(ngroups * d_state), column(ngroups * d_state)
        self.in_dt = column(nheads)
        self.dt_bias = nn.Parameter(torch.full((self.nheads,), -2.0))
        self.A_log = nn.Parameter(torch.arange(1, nheads + 1).float().log().chunk(self.world_size)[rank].clone())
        self.D = nn.Parameter(torch.ones(self.nheads))
        self.norm = RMSNormGated(self.d_ssm, group_size=self.d_ssm // self.ngroups)
        out = torch.randn(d_model, d_inner) * 0.05
        self.out_proj = nn.Parameter(out.chunk(self.world_size, dim=1)[rank].clone())

    def forward(self, u):
        u = _CopyInput.apply(u, self.process_group)
        b, l, _ = u.shape
        z, x = F.linear(u, self.in_z), F.linear(u, self.in_x)
        x = x.view(b, l, self.nheads, self.headdim)
        repeat = self.nheads // self.ngroups
        B = F.linear(u, self.in_B).view(b, l, self.ngroups, self.d_state).repeat_interleave(repeat, dim=2)
        C = F.linear(u, self.in_C).view(b, l, self.ngroups, self.d_state).repeat_interleave(repeat, dim=2)
        dt = F.softplus(F.linear(u, self.in_dt) + self.dt_bias)
        decay = torch.exp(-dt * self.A_log.exp())

        state = u.new_zeros(b, self.nheads, self.headdim, self.d_state)
        outputs = []
        for t in range(l):
            inject = torch.einsum("bh,bhp,bhn->bhpn", dt[:, t], x[:, t], B[:, t])
            state = state * decay[:, t, :, None, None] + inject
            outputs.append(torch.einsum("bhpn,bhn->bhp", state, C[:, t]))
        y = torch.stack(outputs, dim=1) + x * self.D[:, None]
        y = self.norm(y.flatten(2), z)
        return _ReduceOutput.apply(F.linear(y, self.out_proj), self.process_group)


class MambaLM(nn.Module):
    def __init__(self, vocab, d_model, n_layer, process_group):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layer))
        self.mixers = nn.ModuleList(
            Mamba2(d_model, d_state=16, headdim=16, ngroups=4, process_group=process_group) for _ in range(n_layer)
        )
        self.norm_f = nn.LayerNorm(d_model)
        self.lm_head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))
        return self.lm_head(self.norm_f(x))


def main(vocab=256, d_model=64, n_layer=2, steps=5):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    group = dist.new_group(list(range(dist.get_world_size())))
    torch.manual_seed(0)
    model = MambaLM(vocab, d_model, n_layer, group).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        batch = torch.randint(vocab, (2, 33), generator=generator).to(device)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
