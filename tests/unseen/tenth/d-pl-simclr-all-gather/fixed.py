"""SimCLR with negatives from all processes (LightningModule)."""
import torch
import torch.nn.functional as F
from pytorch_lightning import LightningModule, Trainer


class SimCLR(LightningModule):
    def __init__(self, encoder, projection, temperature=0.1, lr=1e-3):
        super().__init__()
        self.encoder, self.projection = encoder, projection
        self.temperature, self.lr = temperature, lr

    def training_step(self, batch, batch_idx):
        (img1, img2), _ = batch
        z1 = F.normalize(self.projection(self.encoder(img1)), dim=-1)
        z2 = F.normalize(self.projection(self.encoder(img2)), dim=-1)
        loss = self.nt_xent_loss(z1, z2)
        self.log("train_loss", loss, sync_dist=True)
        return loss

    def nt_xent_loss(self, out_1, out_2, eps=1e-6):
        out = torch.stack([out_1, out_2])  # [2, b, d]
        out_dist = self.all_gather(out, sync_grads=True)
        out_dist = out_dist.permute(1, 0, 2, 3).reshape(-1, out_1.size(-1))
        out = out.flatten(0, 1)

        sim = torch.exp(out @ out_dist.t() / self.temperature).sum(dim=-1)
        neg = sim - torch.e ** (1 / self.temperature)
        pos = torch.exp(torch.sum(out_1 * out_2, dim=-1) / self.temperature)
        pos = torch.cat([pos, pos], dim=0)
        return -torch.log(pos / (neg + eps)).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def fit(model, datamodule, devices):
    Trainer(accelerator="gpu", devices=devices, strategy="ddp").fit(model, datamodule)
