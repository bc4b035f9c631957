# Right: with labels the model is only ever built with parallel_output=True; parallel_output=False is built for serving alone, without labels.
import torch
from torch import nn
import torch.nn.functional as F
from megatron.core import tensor_parallel, parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, VocabParallelEmbedding


class GPT(nn.Module):
    def __init__(self, config, vocab, layers, parallel_output=True, share=True):
        super().__init__()
        self.config = config
        self.parallel_output = parallel_output
        self.share = share
        self.embedding = VocabParallelEmbedding(vocab, config.hidden_size, init_method=config.init_method, config=config)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.hidden_size)
        for p in self.norm.parameters():
            p.sequence_parallel = config.sequence_parallel
        self.output_layer = ColumnParallelLinear(config.hidden_size, vocab, config=config, init_method=config.init_method, bias=False,
                                                 gather_output=not parallel_output, skip_weight_param_allocation=share)

    def shared_weight(self):
        return self.embedding.weight if self.share else None

    def forward(self, ids, labels=None):
        x = self.embedding(ids).transpose(0, 1).contiguous()
        if self.config.sequence_parallel:
            x = tensor_parallel.scatter_to_sequence_parallel_region(x)
        for l in self.layers:
            x = l(x)
        x = self.norm(x)
        logits, _ = self.output_layer(x, weight=self.shared_weight())
        if labels is None:
            return logits.transpose(0, 1).contiguous()
        loss = tensor_parallel.vocab_parallel_cross_entropy(logits.float(), labels.t().contiguous())
        return loss.t().contiguous()



def pretrain(config, layers, ids, labels):
    model = GPT(config, 51200, layers, parallel_output=True)
    return model(ids, labels).mean()


@torch.no_grad()
def serve(config, layers, ids):
    model = GPT(config, 51200, layers, parallel_output=False)
    return model(ids)[:, -1].argmax(-1)
