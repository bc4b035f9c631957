"""Contrastive head of a dense retriever (tevatron / simcse style)."""
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class EncoderModel(nn.Module):
    def __init__(self, encoder, normalize=False, temperature=1.0, negatives_x_device=True):
        super().__init__()
        self.encoder = encoder
        self.normalize = normalize
        self.temperature = temperature
        self.cross_entropy = nn.CrossEntropyLoss(reduction="mean")
        self.is_ddp = dist.is_initialized() and negatives_x_device
        if self.is_ddp:
            self.process_rank = dist.get_rank()
            self.world_size = dist.get_world_size()

    def _pooling(self, hidden, mask):
        reps = hidden[:, 0]
        if self.normalize:
            reps = torch.nn.functional.normalize(reps, p=2, dim=-1)
        return reps

    def encode(self, features):
        if features is None:
            return None
        out = self.encoder(**features, return_dict=True)
        return self._pooling(out.last_hidden_state, features["attention_mask"])

    def forward(self, query=None, passage=None):
        q_reps = self.encode(query)
        p_reps = self.encode(passage)
        if q_reps is None or p_reps is None:
            return {"q_reps": q_reps, "p_reps": p_reps}
        if self.is_ddp:
            q_reps = self._dist_gather_tensor(q_reps)
            p_reps = self._dist_gather_tensor(p_reps)
        scores = torch.matmul(q_reps, p_reps.transpose(0, 1)) / self.temperature
        scores = scores.view(q_reps.size(0), -1)
        target = torch.arange(scores.size(0), device=scores.device, dtype=torch.long)
        target = target * (p_reps.size(0) // q_reps.size(0))
        loss = self.cross_entropy(scores, target)
        if self.is_ddp:
            loss = loss * self.world_size
        return {"loss": loss, "scores": scores}

    def _dist_gather_tensor(self, t):
        if t is None:
            return None
        t = t.contiguous()
        all_tensors = [torch.empty_like(t) for _ in range(self.world_size)]
        dist.all_gather(all_tensors, t)
        all_tensors[self.process_rank] = t
        all_tensors = torch.cat(all_tensors, dim=0)
        return all_tensors


def train(model, loader, optimizer, device):
    model = DDP(model.to(device), device_ids=[device])
    for query, passage in loader:
        loss = model(query, passage)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
