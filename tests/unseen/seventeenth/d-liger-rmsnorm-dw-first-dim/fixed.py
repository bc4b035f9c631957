# Source: linkedin/Liger-Kernel commit 0e0c5cd2, src/liger_kernel/ops/rms_norm.py
# With a DTensor input sharded on several mesh dimensions (batch and sequence) the weight gradient
# has to be summed over each of them. A `break` stopped after the first sharded dimension.
# Repair: remove the `break`.
import torch
from torch.distributed.tensor import DTensor, Shard

from liger_kernel.ops.utils import ensure_contiguous


def rms_norm_forward(X, W, eps):
    RSTD = torch.rsqrt(X.float().pow(2).mean(-1, keepdim=True) + eps)
    return (X.float() * RSTD).to(X.dtype) * W, RSTD


def rms_norm_backward(dY, X, W, RSTD):
    xhat = X.float() * RSTD
    dW = (dY.float() * xhat).flatten(0, -2).sum(0).to(W.dtype)
    m = dY.float() * W.float()
    dX = RSTD * (m - xhat * (m * xhat).mean(-1, keepdim=True))
    return dX.to(X.dtype), dW


class LigerRMSNormFunction(torch.autograd.Function):
    @staticmethod
    @ensure_contiguous
    def forward(ctx, X, W, eps):
        ctx.is_dtensor_input = isinstance(X, DTensor)
        if ctx.is_dtensor_input:
            # batch and / or sequence are sharded, the hidden dimension never is
            ctx.dtensor_device_mesh = X.device_mesh
            ctx.dtensor_placements = X.placements
            X = X.to_local()
        Y, RSTD = rms_norm_forward(X, W, eps)
        ctx.save_for_backward(X, W, RSTD)
        if ctx.is_dtensor_input:
            Y = DTensor.from_local(Y, device_mesh=ctx.dtensor_device_mesh, placements=ctx.dtensor_placements)
        return Y

    @staticmethod
    @ensure_contiguous
    def backward(ctx, dY):
        X, W, RSTD = ctx.saved_tensors
        if isinstance(dY, DTensor):
            dY = dY.to_local()
        dX, dW = rms_norm_backward(dY, X, W, RSTD)
        if ctx.is_dtensor_input:
            dX = DTensor.from_local(dX, device_mesh=ctx.dtensor_device_mesh, placements=ctx.dtensor_placements)
            for i, placement in enumerate(ctx.dtensor_placements):
                if isinstance(placement, Shard):
                    pg = ctx.dtensor_device_mesh.get_group(mesh_dim=i)
                    torch.distributed.all_reduce(dW, group=pg)
        return dX, dW, None
