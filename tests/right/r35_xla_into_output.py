import torch_xla.core.xla_model as xm


def into_output(x, out, groups):
    xm.reduce_scatter(xm.REDUCE_SUM, x, scale=1.0, scatter_dim=0, shard_count=4, groups=groups, output=out)
    return out

