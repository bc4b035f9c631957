"""In-batch negatives of all ranks: local queries against all documents."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        output = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(output, x)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        return grads[dist.get_rank()]  # BUG: the other ranks' queries use these documents too


class Contrastive(torch.nn.Module):
    def __init__(self, model, temperature=0.02):
        super().__init__()
        self.model = model
        self.temperature = temperature

    def forward(self, query_features, doc_features):
        # every rank has its own queries and documents
        queries = F.normalize(self.model(query_features), dim=-1)
        docs = F.normalize(self.model(doc_features), dim=-1)
        all_docs = torch.cat(GatherLayer.apply(docs), dim=0)
        scores = queries @ all_docs.t() / self.temperature
        labels = torch.arange(queries.size(0), device=scores.device) + dist.get_rank() * queries.size(0)
        return F.cross_entropy(scores, labels)
