"""Send the weights of an FSDP2 model to the inference servers.

inclusionAI/AReaL da2c09f05da3, arealite/engine/fsdp_engine.py
"""
import torch
import torch.distributed as dist
from arealite.utils.distributed import init_custom_process_group
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class FSDPEngine:
    def __init__(self, model, mesh):
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        self.model = model
        self.weight_update_group = None

    def _init_distributed_weight_update(self, meta):
        # the group of rank 0 and the inference servers
        if dist.get_rank() == 0:
            self.weight_update_group = init_custom_process_group(
                backend="nccl",
                world_size=meta.world_size,
                init_method=f"tcp://{meta.master_address}:{meta.master_port}",
                rank=0,
                group_name=meta.group_name,
            )

    def _update_weights_from_distributed(self):
        """Broadcast parameters from rank 0 (FSDP2 compatible)."""
        if dist.get_rank() == 0:
            for name, param in self.model.named_parameters():
                if isinstance(param.data, DTensor):
                    tensor = param.data.full_tensor()  # BUG
                else:
                    tensor = param.data
                dist.broadcast(tensor, src=0, group=self.weight_update_group)
                del tensor  # optional, for memory hygiene
            torch.cuda.empty_cache()

    def upload_weights(self):
        dist.barrier()
        self._update_weights_from_distributed()
        dist.barrier()
