"""Early stopping in a DDP loop: every rank validates its own part."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class EarlyStopping:
    def __init__(self, patience=3):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def update(self, value):
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


class Trainer:
    def __init__(self, model, train_loader, val_loader, cfg):
        self.rank = dist.get_rank()
        self.model = DDP(model.cuda(), device_ids=[torch.cuda.current_device()])
        self.train_loader, self.val_loader, self.cfg = train_loader, val_loader, cfg
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.stopper = EarlyStopping(cfg.patience)
        self.criterion = torch.nn.CrossEntropyLoss()

    @torch.no_grad()
    def validate(self):
        """This rank's batches only: the sampler splits the validation set."""
        self.model.eval()
        total, n = torch.zeros((), device="cuda"), 0
        for x, y in self.val_loader:
            total += self.criterion(self.model.module(x.cuda()), y.cuda())
            n += 1
        return total / n

    def train_epoch(self):
        self.model.train()
        for x, y in self.train_loader:
            loss = self.criterion(self.model(x.cuda()), y.cuda())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.train_loader.sampler.set_epoch(epoch)
            self.train_epoch()
            val_loss = self.validate().item()
            if self.stopper.update(val_loss):  # BUG
                break
