# sharded logits that are gathered, or whose parts are put together by hand
import torch
import torch.nn.functional as F
from megatron.core import tensor_parallel
from megatron.core.tensor_parallel import ColumnParallelLinear, vocab_parallel_cross_entropy
from megatron.core.transformer.module import MegatronModule


class Head(MegatronModule):
    def __init__(self, config):
        super().__init__(config)
        self.output = ColumnParallelLinear(config.hidden_size, config.vocab_size, config=config, init_method=config.init_method, gather_output=False)

    def forward(self, h, labels):
        logits, _ = self.output(h)
        logits = logits.transpose(0, 1).contiguous()
        loss = vocab_parallel_cross_entropy(logits.float(), labels)
        return loss

    def whole(self, h, labels):
        logits, _ = self.output(h)
        logits = tensor_parallel.gather_from_tensor_model_parallel_region(logits)
        logits = logits[:, :-1].transpose(1, 2)
        return F.cross_entropy(logits, labels)

    def sampled(self, h):
        logits, _ = self.output(h[-1:])
        logits = logits[:, -1]
        logits = tensor_parallel.gather_from_tensor_model_parallel_region(logits)
        return torch.softmax(logits, dim=-1)

    def heads(self, h):
        q, _ = self.output(h)
        s, b, _ = q.shape
        q = q.view(s, b, -1, 64).permute(1, 2, 0, 3)
        return torch.softmax(q @ q.transpose(-1, -2), dim=-1)

    def gated(self, h):
        x, _ = self.output(h)
        a, b = x.chunk(2, dim=-1)
        return F.silu(a) * b

    def experts(self, h, idx):
        x, _ = self.output(h)
        x = x.transpose(0, 1)
        parts = x.split(4, dim=0)
        return [torch.softmax(p, dim=1) for p in parts]
