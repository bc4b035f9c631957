# Tensor-parallel vision-to-language projector in the shardformer style.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from colossalai.shardformer.layer import Linear1D_Col
from colossalai.shardformer.layer._operation import reduce_forward


class ProjectorOut(nn.Module):
    """Second projector layer; the input features are already split over process_group."""

    def __init__(self, in_features, out_features, process_group, bias=True):
        super().__init__()
        self.process_group = process_group
        world = dist.get_world_size(process_group)
        self.weight = nn.Parameter(torch.empty(out_features, in_features // world))
        nn.init.normal_(self.weight, std=in_features**-0.5)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x):
        out = F.linear(x, self.weight)
        out = reduce_forward(out, self.process_group)
        return out if self.bias is None else out + self.bias


class Projector(nn.Module):
    def __init__(self, vision_dim, text_dim, process_group):
        super().__init__()
        fc1 = nn.Linear(vision_dim, text_dim)
        self.fc1 = Linear1D_Col.from_native_module(fc1, process_group=process_group)
        self.act = nn.GELU()
        self.fc2 = ProjectorOut(text_dim, text_dim, process_group)

    def forward(self, image_features):
        return self.fc2(self.act(self.fc1(image_features)))
