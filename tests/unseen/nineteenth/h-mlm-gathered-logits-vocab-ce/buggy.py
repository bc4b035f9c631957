"""Output layer and loss of a GPT model. NVIDIA/Megatron-LM, issue #7452 (item 2, megatron/core/models/gpt)."""
import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, vocab_parallel_cross_entropy


class GPTModel(torch.nn.Module):
    def __init__(self, config, embedding, decoder, vocab_size, parallel_output=True):
        super().__init__()
        self.embedding, self.decoder = embedding, decoder
        self.parallel_output = parallel_output
        self.output_layer = ColumnParallelLinear(
            config.hidden_size,
            vocab_size,
            config=config,
            init_method=config.init_method,
            bias=False,
            skip_bias_add=False,
            gather_output=not parallel_output,
        )

    def compute_language_model_loss(self, labels, logits):
        labels = labels.transpose(0, 1).contiguous()  # [b, s] -> [s, b]
        loss = vocab_parallel_cross_entropy(logits.float(), labels)  # BUG: logits may be gathered
        return loss.transpose(0, 1).contiguous()

    def forward(self, input_ids, position_ids, attention_mask, labels=None):
        hidden = self.embedding(input_ids, position_ids)
        hidden = self.decoder(hidden, attention_mask)
        logits, _ = self.output_layer(hidden)
        if labels is None:
            return logits.transpose(0, 1).contiguous()
        return self.compute_language_model_loss(labels, logits)


def build_distillation_teacher_and_student(config, make_embedding, make_decoder, vocab_size):
    teacher = GPTModel(config, make_embedding(), make_decoder(), vocab_size, parallel_output=False)
    student = GPTModel(config, make_embedding(), make_decoder(), vocab_size, parallel_output=False)
    return teacher.requires_grad_(False), student
