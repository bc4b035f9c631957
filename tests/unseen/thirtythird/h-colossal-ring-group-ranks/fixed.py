"""Inner and inter-ring process groups for two-level ring attention.

Source: https://github.com/hpcaitech/ColossalAI/pull/6071
Wrong: positions inside the sequence-parallel group are handed to new_group, which takes global
ranks; right only when the sp group is exactly ranks 0..sp_size-1 of the job.
Repair: walk over all sp groups of the mesh and translate positions to global ranks.
"""
import numpy as np
import torch.distributed as dist

from colossalai.cluster import ProcessGroupMesh


class RingAttention:
    HALF_INDICES = None

    @staticmethod
    def get_double_ring_groups(sp_axis: int, pg_mesh: ProcessGroupMesh, inner_ring_size: int):
        sp_group = pg_mesh.get_group_along_axis(sp_axis)
        sp_size = dist.get_world_size(sp_group)
        rank = dist.get_rank()
        mesh = np.arange(dist.get_world_size()).reshape(pg_mesh.shape)
        all_sp_ranks = np.moveaxis(mesh, sp_axis, -1).reshape(-1, sp_size).tolist()
        assert sp_size % inner_ring_size == 0
        num_rings = sp_size // inner_ring_size
        inner_ring_group = inter_ring_group = None

        for sp_ranks in all_sp_ranks:
            for i in range(num_rings):
                ranks = sp_ranks[i * inner_ring_size:(i + 1) * inner_ring_size]
                group = dist.new_group(ranks)
                if rank in ranks:
                    inner_ring_group = group

        for sp_ranks in all_sp_ranks:
            for i in range(inner_ring_size):
                ranks = sp_ranks[i::inner_ring_size]
                group = dist.new_group(ranks)
                if rank in ranks:
                    inter_ring_group = group

        return inner_ring_group, inter_ring_group
