"""Image-text contrastive loss with gathered features (ALBEF / open_clip style)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class ClipLoss(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.rank = cfg.rank
        self.world_size = cfg.world_size
        self.local_loss = cfg.local_loss
        self.prev_num_logits = 0
        self.labels = {}

    def gather_features(self, image_features, text_features):
        with torch.no_grad():
            gathered_image = [torch.zeros_like(image_features) for _ in range(self.world_size)]
            gathered_text = [torch.zeros_like(text_features) for _ in range(self.world_size)]
            dist.all_gather(gathered_image, image_features)
            dist.all_gather(gathered_text, text_features)
        if not self.local_loss:
            gathered_image[self.rank] = image_features.detach()  # BUG
            gathered_text[self.rank] = text_features.detach()
        return torch.cat(gathered_image, dim=0), torch.cat(gathered_text, dim=0)

    def forward(self, image_features, text_features, logit_scale):
        device = image_features.device
        image_features = F.normalize(image_features, dim=-1)
        text_features = F.normalize(text_features, dim=-1)
        if self.world_size > 1:
            all_image, all_text = self.gather_features(image_features, text_features)
            if self.local_loss:
                logits_per_image = logit_scale * image_features @ all_text.T
                logits_per_text = logit_scale * text_features @ all_image.T
            else:
                logits_per_image = logit_scale * all_image @ all_text.T
                logits_per_text = logits_per_image.T
        else:
            logits_per_image = logit_scale * image_features @ text_features.T
            logits_per_text = logit_scale * text_features @ image_features.T
        num_logits = logits_per_image.shape[0]
        if self.prev_num_logits != num_logits or device not in self.labels:
            labels = torch.arange(num_logits, device=device, dtype=torch.long)
            if self.world_size > 1 and self.local_loss:
                labels = labels + num_logits * self.rank
            self.labels[device] = labels
            self.prev_num_logits = num_logits
        labels = self.labels[device]
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2


class Clip(nn.Module):
    def __init__(self, visual, text, cfg):
        super().__init__()
        self.visual, self.text = visual, text
        self.logit_scale = nn.Parameter(torch.ones([]) * 2.65)
        self.loss = ClipLoss(cfg)

    def forward(self, image, tokens):
        return self.loss(self.visual(image), self.text(tokens), self.logit_scale.exp())
