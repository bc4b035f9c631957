from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DistributedSampler


def sampler(data, dp, tp):
    assert tp == 1
    mesh = init_device_mesh("cuda", (dp, tp), mesh_dim_names=("dp", "tp"))
    dp_mesh = mesh["dp"]
    rank = dp_mesh.get_rank()
    return DistributedSampler(data, num_replicas=dp_mesh.size(), rank=rank)
