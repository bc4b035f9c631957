# slime 478b80709 (PR #1748): the linear attention after the sequence-parallel gather is computed whole on
# every TP rank; the default backward reduce-scatters tp identical gradients, inflating them tp times.
from abc import ABC, abstractmethod

import torch
from megatron.core import mpu, tensor_parallel
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule


class HuggingfaceAttention(MegatronModule, ABC):
    """Attention layer with the (not tensor-parallel) modules of huggingface; needs context_parallel_size 1."""

    def __init__(self, args, config, layer_number: int):
        super().__init__(config=config)
        self.args = args
        self.config = config
        # Note that megatron layer_number starts at 1
        self.layer_number = layer_number
        self.hf_layer_idx = layer_number - 1

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor,
        packed_seq_params: PackedSeqParams | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.args.sequence_parallel:
            hidden_states = tensor_parallel.gather_from_sequence_parallel_region(  # BUG
                hidden_states, group=mpu.get_tensor_model_parallel_group()
            )

        hidden_states = hidden_states.permute(1, 0, 2)  # [bsz, seq_len, hidden_dim]
        output = self.hf_forward(hidden_states, packed_seq_params)
        output = output.permute(1, 0, 2)  # [seq_len, bsz, hidden_dim]

        if self.args.sequence_parallel:
            output = tensor_parallel.scatter_to_sequence_parallel_region(
                output, group=mpu.get_tensor_model_parallel_group()
            )
        return output, None

    @abstractmethod
    def hf_forward(self, hidden_states, packed_seq_params):
        """Huggingface forward function"""


class Attention(HuggingfaceAttention):
    def __init__(self, args, config, layer_number, linear_attn):
        super().__init__(args, config, layer_number)
        self.linear_attn = linear_attn

    def hf_forward(self, hidden_states, packed_seq_params):
        return self.linear_attn(hidden_states=hidden_states, cu_seqlens=packed_seq_params.cu_seqlens_q)
