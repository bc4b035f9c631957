"""Retriever training that frees the GPU while the index is rebuilt."""
# thread: pytorch/pytorch#104336
import faiss
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class RetrieverTrainer:
    def __init__(self, encoder: torch.nn.Module, lr: float, rebuild_every: int):
        self.rank = dist.get_rank()
        self.device = torch.device("cuda", self.rank % torch.cuda.device_count())
        self.encoder = encoder.to(self.device)
        self.model = DDP(self.encoder, device_ids=[self.device.index])
        self.optimizer = torch.optim.SGD(self.encoder.parameters(), lr=lr)
        self.rebuild_every = rebuild_every
        self.index = None

    @torch.no_grad()
    def _embed(self, loader):
        self.encoder.eval()
        chunks = [F.normalize(self.encoder(b.to(self.device)), dim=-1).cpu() for b in loader]
        self.encoder.train()
        return torch.cat(chunks)

    def rebuild_index(self, corpus_loader):
        vectors = self._embed(corpus_loader)
        self.encoder.to("cpu")
        torch.cuda.empty_cache()
        resources = faiss.StandardGpuResources()
        self.index = faiss.index_cpu_to_gpu(
            resources, self.device.index, faiss.IndexFlatIP(vectors.shape[1])
        )
        self.index.add(vectors.numpy())
        neighbours = self.index.search(vectors.numpy(), 8)[1]
        self.index = None
        dist.barrier()
        self.encoder.to(self.device)  # BUG: gradient accumulators are new, the reducer's hooks sit on the old ones
        return torch.from_numpy(neighbours)

    def train(self, train_loader, corpus_loader, steps):
        neighbours = self.rebuild_index(corpus_loader)
        for step, (query, positive, row) in enumerate(train_loader):
            if step == steps:
                break
            if step > 0 and step % self.rebuild_every == 0:
                neighbours = self.rebuild_index(corpus_loader)
            negatives = corpus_loader.dataset[neighbours[row][:, 1]]
            batch = torch.cat([query, positive, negatives]).to(self.device)
            q, p, n = self.model(batch).chunk(3)
            loss = F.triplet_margin_loss(q, p, n)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
