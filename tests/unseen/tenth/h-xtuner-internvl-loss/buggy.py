"""InternVL training with the sequence split over a sequence-parallel mesh.

InternLM/xtuner 5e58619f395c, xtuner/_lite/patches/internvl_chat.py
"""
from typing import cast

import torch
import torch.distributed.nn.functional as distF
from torch import nn
from torch.nn import functional as F
from xtuner._lite.parallel.sequence import split_for_sequence_parallel


class CUDAPatchedInternVLChatModel(nn.Module):
    """FSDP averages the gradients over the data- and the sequence-parallel ranks."""

    def __init__(self, language_model):
        super().__init__()
        self.language_model = language_model

    def forward(self, input_embeds, position_ids, labels, sequence_parallel_mesh=None):
        # input_embeds, labels: the full sequence, the same on every rank of sequence_parallel_mesh
        if sequence_parallel_mesh and sequence_parallel_mesh.size() > 1:
            input_embeds = split_for_sequence_parallel(input_embeds, dim=1, sp_mesh=sequence_parallel_mesh)
            position_ids = split_for_sequence_parallel(position_ids, dim=1, sp_mesh=sequence_parallel_mesh)
            _labels = split_for_sequence_parallel(labels, dim=1, sp_mesh=sequence_parallel_mesh)
        else:
            _labels = labels

        outputs = self.language_model(inputs_embeds=input_embeds, position_ids=position_ids)
        # labels are already shifted
        loss = F.cross_entropy(outputs.logits.flatten(0, 1).float(), _labels.flatten(), ignore_index=-100)

        valid_tokens = (cast(torch.Tensor, _labels) >= 0).sum()
        loss = loss * valid_tokens
        if sequence_parallel_mesh and sequence_parallel_mesh.size() > 1:
            loss = distF.all_reduce(loss, group=sequence_parallel_mesh.get_group())
        loss = loss / valid_tokens  # BUG

        return loss
