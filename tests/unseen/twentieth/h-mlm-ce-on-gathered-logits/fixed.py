"""GPT model: logits for inference, vocabulary-parallel loss for training."""
import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, vocab_parallel_cross_entropy


class GPTModel(torch.nn.Module):
    def __init__(self, config, decoder, vocab_size):
        super().__init__()
        self.decoder = decoder
        self.output_layer = ColumnParallelLinear(
            config.hidden_size,
            vocab_size,
            config=config,
            init_method=config.init_method,
            bias=False,
            gather_output=False,
        )

    def forward(self, decoder_input, labels=None):
        hidden_states = self.decoder(decoder_input)
        logits, _ = self.output_layer(hidden_states, runtime_gather_output=labels is None)
        if labels is None:
            return logits.transpose(0, 1).contiguous()
        labels = labels.transpose(0, 1).contiguous()
        loss = vocab_parallel_cross_entropy(logits.float(), labels)
        return loss.transpose(0, 1).contiguous()
