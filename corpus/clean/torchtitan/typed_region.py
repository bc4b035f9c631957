"""A typed training step: vocabulary-parallel head, loss as a pending sum over the data ranks, all inside one checked region."""

import spmd_types as spmd
import torch
import torch.nn.functional as F
from spmd_types.checker import typecheck
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (2, 2, 4), mesh_dim_names=("dp", "cp", "tp"))
dp, cp, tp = mesh.get_group("dp"), mesh.get_group("cp"), mesh.get_group("tp")


def rms_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps) * weight


def feed_forward(x, w1, w2, w3):
    hidden = F.silu(torch.matmul(x, w1)) * torch.matmul(x, w3)
    return torch.matmul(hidden, w2)


def head_loss(x, w_head, target):
    x = spmd.convert(x, tp, src=spmd.I, dst=spmd.R)
    logits = torch.matmul(x, w_head)
    logits = spmd.all_gather(logits, tp, src=spmd.S(2), dst=spmd.I)
    logp = torch.log_softmax(logits, dim=-1)
    return -(logp * target).sum()


def step(x, target, params, tokens):
    normed = rms_norm(x, params["norm"])
    normed = spmd.convert(normed, tp, src=spmd.I, dst=spmd.R)
    out = feed_forward(normed, params["w1"], params["w2"], params["w3"])
    out = spmd.all_reduce(out, tp, src=spmd.P, dst=spmd.I)
    loss = head_loss(x + out, params["head"], target)
    loss = loss / tokens
    for axis in (dp, cp):
        loss = spmd.reinterpret(loss, axis, src=spmd.V, dst=spmd.P)
    return loss


def main(hidden, inner, vocab):
    probabilities = torch.randn(4, 128, vocab).softmax(-1)
    with spmd.set_current_mesh(mesh), typecheck(local=True):
        data = {dp: spmd.V, cp: spmd.V, tp: spmd.I}
        x = spmd.assert_type(torch.randn(4, 128, hidden), data)
        target = spmd.assert_type(probabilities, data)
        sharded = {dp: spmd.R, cp: spmd.R}
        inner, vocab = inner // tp.size(), vocab // tp.size()
        params = {
            "norm": spmd.assert_type(torch.randn(hidden, requires_grad=True), {**sharded, tp: spmd.I}),
            "w1": spmd.assert_type(torch.randn(hidden, inner, requires_grad=True), {**sharded, tp: spmd.S(1)}),
            "w2": spmd.assert_type(torch.randn(inner, hidden, requires_grad=True), {**sharded, tp: spmd.S(0)}),
            "w3": spmd.assert_type(torch.randn(hidden, inner, requires_grad=True), {**sharded, tp: spmd.S(1)}),
            "head": spmd.assert_type(torch.randn(hidden, vocab, requires_grad=True), {**sharded, tp: spmd.S(1)}),
        }
        loss = step(x, target, params, tokens=4096)
        spmd.assert_type(loss, {dp: spmd.P, cp: spmd.P, tp: spmd.I})
        shown = spmd.all_reduce(loss.detach(), dp, src=spmd.P, dst=spmd.R)
        shown = spmd.all_reduce(shown, cp, src=spmd.P, dst=spmd.R)
        loss.backward()
    return shown
