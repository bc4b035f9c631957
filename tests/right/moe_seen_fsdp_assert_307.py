from torch.distributed.fsdp import fully_shard


def shard(model, dp_mesh, edp_mesh):
    if edp_mesh.size() != dp_mesh.size():
        raise ValueError("expert parallelism is not supported")
    for block in model.layers:
        fully_shard(block.moe.experts, mesh=edp_mesh)
        fully_shard(block, mesh=dp_mesh)
    fully_shard(model, mesh=dp_mesh)
