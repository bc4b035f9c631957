"""Lightning with a hook after backward that averages what the strategy does not know of."""
import lightning as L
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Prompted(L.LightningModule):
    def __init__(self, net, n_prompt, dim):
        super().__init__()
        self.net = net
        self.prompt = torch.nn.Parameter(torch.zeros(n_prompt, dim))
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        x, y = batch
        loss = F.cross_entropy(self.net(x, self.prompt), y)
        opt.zero_grad()
        self.manual_backward(loss)
        self.average_gradients()
        self.clip_gradients(opt, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        opt.step()
        self.log("loss", loss.detach(), sync_dist=True)

    def average_gradients(self):
        if self.trainer.world_size == 1:
            return
        for p in self.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)

    @torch.no_grad()
    def validation_step(self, batch, batch_idx):
        x, y = batch
        right = (self.net(x, self.prompt).argmax(-1) == y).sum()
        stats = torch.stack([right, torch.tensor(y.numel(), device=right.device)])
        dist.all_reduce(stats)
        self.log("accuracy", stats[0] / stats[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)
