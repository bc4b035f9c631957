# VeOmni 864a636c (PR #577): when ep_fsdp has size 1 the experts are wrapped as NO_SHARD on the full FSDP
# mesh, which averages the gradients of different experts (those of different EP ranks).
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp._common_utils import _get_module_fsdp_state_if_fully_sharded_module

from ..utils import logging
from .parallel_state import get_parallel_state
from .utils import get_module_from_path, set_module_from_path

logger = logging.get_logger(__name__)


def parallelize_model_fsdp1(model: nn.Module, fsdp_no_shard_states=None, fsdp_no_shard_states_fqn=(), **fsdp_kwargs):
    """fsdp_no_shard_states: expert parameters, already cut to the experts of this EP rank."""
    parallel_state = get_parallel_state()
    fsdp_kwargs["device_mesh"] = parallel_state.fsdp_mesh
    fsdp_kwargs["sharding_strategy"] = ShardingStrategy.FULL_SHARD
    fsdp_kwargs["use_orig_params"] = True

    model = FullyShardedDataParallel(model, ignored_states=fsdp_no_shard_states, **fsdp_kwargs)
    if not parallel_state.ep_enabled:
        return model

    # ep_fsdp_device_mesh has the dimensions ("ep", "ep_fsdp") over the ranks of fsdp_mesh.
    ep_fsdp_mesh = parallel_state.ep_fsdp_device_mesh["ep_fsdp"]
    for fqn in fsdp_no_shard_states_fqn:
        no_shard_module = get_module_from_path(model, fqn)
        fsdp_kwargs["sharding_strategy"] = ShardingStrategy.FULL_SHARD
        fsdp_kwargs["device_mesh"] = ep_fsdp_mesh
        fsdp_module = FullyShardedDataParallel(no_shard_module, **fsdp_kwargs)
        fsdp_state = _get_module_fsdp_state_if_fully_sharded_module(fsdp_module)
        # An expert sums over the tokens of all EP ranks.
        fsdp_state._gradient_postdivide_factor *= parallel_state.ep_size
        set_module_from_path(model, fqn, fsdp_module)
    logger.info_rank0(f"ep_fsdp mesh of the experts: {ep_fsdp_mesh}.")
    return model
