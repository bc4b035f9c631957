"""A typed program: every tensor is asserted once, the run-time checker and this one agree on the rest."""

import spmd_types as spmd
import torch
import torch.nn.functional as F
from spmd_types.checker import typecheck
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp = mesh.get_group("dp")
tp = mesh.get_group("tp")


def mlp(x, w_gate, w_up, w_down):
    x = spmd.convert(x, tp, src=spmd.I, dst=spmd.R)
    hidden = F.silu(torch.matmul(x, w_gate)) * torch.matmul(x, w_up)
    out = torch.matmul(hidden, w_down)
    out = spmd.reinterpret(out, tp, src=spmd.V, dst=spmd.P)
    return spmd.all_reduce(out, tp, src=spmd.P, dst=spmd.I)


with spmd.set_current_mesh(mesh), typecheck(local=True):
    x = spmd.assert_type(torch.randn(4, 16, 32), {dp: spmd.V, tp: spmd.I})
    w_gate = spmd.assert_type(torch.randn(32, 16, requires_grad=True), {dp: spmd.R, tp: spmd.V})
    w_up = spmd.assert_type(torch.randn(32, 16, requires_grad=True), {dp: spmd.R, tp: spmd.V})
    w_down = spmd.assert_type(torch.randn(16, 32, requires_grad=True), {dp: spmd.R, tp: spmd.V})
    y = mlp(x, w_gate, w_up, w_down)
    spmd.assert_type(y, {dp: spmd.V, tp: spmd.I})
    loss = y.pow(2).sum()
    total = spmd.all_reduce(spmd.reinterpret(loss, dp, src=spmd.V, dst=spmd.P), dp, src=spmd.P, dst=spmd.R)
    spmd.assert_type(total, {dp: spmd.R, tp: spmd.I})
