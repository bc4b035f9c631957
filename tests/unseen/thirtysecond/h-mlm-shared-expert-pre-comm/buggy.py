"""Shared experts overlapped with the token dispatcher: the module does its own TP communication.
NVIDIA/Megatron-LM, transformer/moe/shared_experts.py, from memory.
"""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.module import MegatronModule


class SharedExpertMLP(MegatronModule):
    stream = None

    def __init__(self, config, fc1_shard, fc2_shard):
        super().__init__(config=config)
        self.fc1_weight = torch.nn.Parameter(fc1_shard)  # [ffn/tp, h]
        self.fc2_weight = torch.nn.Parameter(fc2_shard)  # [h, ffn/tp]
        for w, dim in ((self.fc1_weight, 0), (self.fc2_weight, 1)):
            w.tensor_model_parallel, w.partition_dim = True, dim
        if SharedExpertMLP.stream is None:
            SharedExpertMLP.stream = torch.cuda.Stream()
        self.stream = SharedExpertMLP.stream

    def pre_forward_comm(self, input):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            if self.config.sequence_parallel:
                self.cached_fc1_input = gather_from_sequence_parallel_region(input, tensor_parallel_output_grad=True)
            else:
                self.cached_fc1_input = input  # BUG

    def linear_fc1_forward_and_act(self):
        with torch.cuda.stream(self.stream):
            self.cached_fc2_input = F.gelu(F.linear(self.cached_fc1_input, self.fc1_weight))

    def linear_fc2_forward(self):
        with torch.cuda.stream(self.stream):
            self.cached_fc2_output = F.linear(self.cached_fc2_input, self.fc2_weight)

    def post_forward_comm(self):
        with torch.cuda.stream(self.stream):
            if self.config.sequence_parallel:
                self.cached_output = reduce_scatter_to_sequence_parallel_region(self.cached_fc2_output)
            else:
                self.cached_output = reduce_from_tensor_model_parallel_region(self.cached_fc2_output)

    def get_output(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        return self.cached_output
