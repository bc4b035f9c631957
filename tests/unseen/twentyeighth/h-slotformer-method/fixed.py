"""Training method of an object-centric video model."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP


class SlotRollouter(nn.Module):
    def __init__(self, num_slots, slot_size, history_len, d_model, num_layers, num_heads):
        super().__init__()
        self.num_slots = num_slots
        self.history_len = history_len
        self.in_proj = nn.Linear(slot_size, d_model)
        layer = nn.TransformerEncoderLayer(d_model, num_heads, 4 * d_model, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers)
        self.out_proj = nn.Linear(d_model, slot_size)

    def forward(self, x, pred_len):
        frames = x.flatten(1, 2)
        out = []
        for _ in range(pred_len):
            y = self.encoder(self.in_proj(frames))[:, -self.num_slots :]
            slots = self.out_proj(y)
            out.append(slots)
            frames = torch.cat([frames[:, self.num_slots :], slots], dim=1)
        return torch.stack(out, dim=1)


class SlotFormer(nn.Module):
    def __init__(self, rollouter, decoder, rollout_len, img_weight=1.0):
        super().__init__()
        self.rollouter = rollouter
        self.decoder = decoder
        self.rollout_len = rollout_len
        self.img_weight = img_weight
        for p in decoder.parameters():
            p.requires_grad_(False)

    def forward(self, data_dict):
        slots = data_dict["slots"]
        history = slots[:, : self.rollouter.history_len]
        target = slots[:, self.rollouter.history_len :]
        pred = self.rollouter(history, self.rollout_len)
        out = {"pred_slots": pred, "target_slots": target}
        if self.img_weight > 0:
            out["recon"] = self.decoder(pred.flatten(0, 1))
        return out

    def loss_function(self, data_dict, out):
        losses = {"slot_recon_loss": F.mse_loss(out["pred_slots"], out["target_slots"])}
        if self.img_weight > 0:
            target = data_dict["img"][:, self.rollouter.history_len :].flatten(0, 1)
            losses["img_recon_loss"] = self.img_weight * F.mse_loss(out["recon"], target)
        return losses


class Method:
    def __init__(self, model, datamodule, params, local_rank):
        self.device = torch.device("cuda", local_rank)
        self.params = params
        self.loader = datamodule.train_loader
        model = model.to(self.device)
        self.model = DDP(model, device_ids=[local_rank], output_device=local_rank)
        self.optimizer = torch.optim.Adam(
            [p for p in model.parameters() if p.requires_grad], lr=params.lr
        )
        self.grad_scaler = GradScaler(enabled=params.fp16)

    def _training_step(self, batch):
        batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
        module = self.model.module
        with autocast(enabled=self.params.fp16):
            out = self.model(batch)
            losses = module.loss_function(batch, out)
            loss = sum(losses.values())
        self.optimizer.zero_grad()
        self.grad_scaler.scale(loss).backward()
        if self.params.clip_grad > 0:
            self.grad_scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(module.parameters(), self.params.clip_grad)
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        return {k: v.detach() for k, v in losses.items()}

    def fit(self):
        self.model.train()
        for epoch in range(self.params.max_epochs):
            self.loader.sampler.set_epoch(epoch)
            for batch in self.loader:
                self._training_step(batch)
