# Spijkervet/SimCLR, pull 46: gather both views first and concatenate them then; a gather of [z_i, z_j] gives
# [z_i1, z_j1, z_i2, z_j2, ..], where the diagonals and the mask below expect [z_i1, z_i2, .., z_j1, z_j2, ..].
"""Normalised temperature-scaled cross entropy over the views of all ranks."""
import torch
import torch.nn as nn
from torch.distributed.nn.functional import all_gather  # backward sums over ranks, DDP averages


class NT_Xent(nn.Module):
    def __init__(self, batch_size, temperature, world_size):
        super().__init__()
        self.batch_size, self.temperature, self.world_size = batch_size, temperature, world_size
        self.mask = self.mask_correlated_samples(batch_size, world_size)
        self.criterion = nn.CrossEntropyLoss(reduction="sum")
        self.similarity_f = nn.CosineSimilarity(dim=2)

    @staticmethod
    def mask_correlated_samples(batch_size, world_size):
        N = 2 * batch_size * world_size
        mask = torch.ones((N, N), dtype=bool).fill_diagonal_(0)
        for i in range(batch_size * world_size):
            mask[i, batch_size * world_size + i] = 0
            mask[batch_size * world_size + i, i] = 0
        return mask

    def forward(self, z_i, z_j):
        N = 2 * self.batch_size * self.world_size
        if self.world_size > 1:
            z_i = torch.cat(all_gather(z_i), dim=0)
            z_j = torch.cat(all_gather(z_j), dim=0)
        z = torch.cat((z_i, z_j), dim=0)
        sim = self.similarity_f(z.unsqueeze(1), z.unsqueeze(0)) / self.temperature
        sim_i_j = torch.diag(sim, self.batch_size * self.world_size)
        sim_j_i = torch.diag(sim, -self.batch_size * self.world_size)
        positive_samples = torch.cat((sim_i_j, sim_j_i), dim=0).reshape(N, 1)
        negative_samples = sim[self.mask].reshape(N, -1)
        labels = torch.zeros(N, dtype=torch.long, device=z.device)
        logits = torch.cat((positive_samples, negative_samples), dim=1)
        return self.criterion(logits, labels) / N
