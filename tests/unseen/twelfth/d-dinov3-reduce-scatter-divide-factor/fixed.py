"""FSDP2 wrapping of the student and the training step of self-supervised pretraining."""
import torch
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method


def ac_compile_parallelize(student: nn.ModuleDict, cfg):
    mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    world_mesh = init_device_mesh("cuda", mesh_shape=(torch.distributed.get_world_size(),), mesh_dim_names=("dp",))
    fsdp_config = {"mesh": world_mesh, "mp_policy": mp_policy}
    blocks = student.backbone.blocks
    for block_id, block in enumerate(blocks):
        blocks[block_id] = fully_shard(block, **fsdp_config, reshard_after_forward=True)
    for prev_block, next_block in zip(blocks, blocks[1:]):
        prev_block.set_modules_to_forward_prefetch([next_block])
        next_block.set_modules_to_backward_prefetch([prev_block])
    fully_shard(student.backbone, **fsdp_config, reshard_after_forward=True)
    register_fsdp_forward_method(student.backbone, "get_intermediate_layers")
    student.dino_head = fully_shard(student.dino_head, **fsdp_config, reshard_after_forward=True)
    return student


def dino_loss(student_logits, teacher_probs, student_temp=0.1):
    lsm = torch.log_softmax(student_logits.float() / student_temp, dim=-1)
    return -(teacher_probs * lsm).sum(-1).mean()  # over the crops on this GPU


def train_step(student, teacher_probs, batch, optimizer, cfg):
    optimizer.zero_grad(set_to_none=True)
    feats = student.backbone(batch["global_crops"])
    loss = dino_loss(student.dino_head(feats), teacher_probs)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), max_norm=cfg.optim.clip_grad)
    optimizer.step()
    return loss.detach()
