# thread: https://github.com/huggingface/transformers/pull/48569
"""Saving a model whose linear layers are sharded over the tensor-parallel mesh."""
import json
import os

import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

PLAN = {
    "q_proj": ColwiseParallel(),
    "k_proj": ColwiseParallel(),
    "v_proj": ColwiseParallel(),
    "o_proj": RowwiseParallel(),
    "gate_proj": ColwiseParallel(),
    "up_proj": ColwiseParallel(),
    "down_proj": RowwiseParallel(),
}


def apply_tp(model, mesh):
    for layer in model.model.layers:
        for block in (layer.self_attn, layer.mlp):
            plan = {n: PLAN[n] for n, _ in block.named_children() if n in PLAN}
            parallelize_module(block, mesh, plan)
    return model


def whole_state_dict(model):
    """Full tensors on the CPU, in the parameters' order."""
    state = {}
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, DTensor):
            tensor = tensor.full_tensor()
        state[name] = tensor.detach().cpu().contiguous()
    return state


class Trainer:
    def __init__(self, model, args, optimizer, train_loader):
        self.mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",))
        self.model = apply_tp(model.cuda(), self.mesh)
        self.args, self.loader = args, train_loader
        self.optimizer = optimizer(self.model.parameters())
        self.step = 0

    @property
    def should_save(self):
        return dist.get_rank() == 0

    def _save(self, output_dir, state_dict):
        os.makedirs(output_dir, exist_ok=True)
        save_file(state_dict, os.path.join(output_dir, "model.safetensors"))
        with open(os.path.join(output_dir, "trainer_state.json"), "w") as f:
            json.dump({"global_step": self.step}, f)

    def save_model(self, output_dir):
        if self.should_save:
            state_dict = whole_state_dict(self.model)  # BUG
            self._save(output_dir, state_dict)

    def train(self):
        self.model.train()
        for batch in self.loader:
            loss = self.model(**{k: v.cuda() for k, v in batch.items()}).loss
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            if self.step % self.args.save_steps == 0:
                self.save_model(os.path.join(self.args.output_dir, f"checkpoint-{self.step}"))
        self.save_model(self.args.output_dir)
