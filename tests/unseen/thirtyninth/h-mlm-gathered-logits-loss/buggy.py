"""Loss of a GPT model whose logits may be gathered."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    ColumnParallelLinear,
    gather_from_tensor_model_parallel_region,
    vocab_parallel_cross_entropy,
)
from megatron.core.transformer.module import MegatronModule


class GPTModel(MegatronModule):
    def __init__(self, config, decoder, embedding, vocab_size, parallel_output=True):
        super().__init__(config=config)
        self.parallel_output = parallel_output
        self.embedding, self.decoder = embedding, decoder
        self.output_layer = ColumnParallelLinear(
            config.hidden_size,
            vocab_size,
            config=config,
            init_method=config.init_method,
            bias=False,
            gather_output=False,
        )

    def compute_language_model_loss(self, labels, logits):
        # labels: [b, s], logits: [s, b, v]
        labels = labels.transpose(0, 1).contiguous()
        loss = vocab_parallel_cross_entropy(logits, labels)  # BUG
        return loss.transpose(0, 1).contiguous()

    def forward(self, input_ids, position_ids, attention_mask, labels=None):
        hidden = self.decoder(self.embedding(input_ids, position_ids), attention_mask)
        logits, _ = self.output_layer(hidden)
        if not self.parallel_output:
            logits = gather_from_tensor_model_parallel_region(logits)
        if labels is None:
            return logits.transpose(0, 1).contiguous()
        return self.compute_language_model_loss(labels, logits)
