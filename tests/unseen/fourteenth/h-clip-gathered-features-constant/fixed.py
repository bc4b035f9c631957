# Reduces open_clip's ClipLoss with local_loss=True and gather_with_grad=False: features of the other ranks
# enter the logits as constants, so a feature never sees the gradient of the rows other ranks computed with it.
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def gather_features(image_features, text_features):
    images = torch.distributed.nn.all_gather(image_features)
    texts = torch.distributed.nn.all_gather(text_features)
    return torch.cat(images, dim=0), torch.cat(texts, dim=0)


class LocalClipLoss(torch.nn.Module):
    def forward(self, image_features, text_features, logit_scale):
        all_images, all_texts = gather_features(image_features, text_features)
        logits_per_image = logit_scale * image_features @ all_texts.T
        logits_per_text = logit_scale * text_features @ all_images.T
        n = image_features.shape[0]
        labels = torch.arange(n, device=image_features.device) + n * dist.get_rank()
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2


def train(model, loader, local_rank):
    model = DDP(model.cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    criterion = LocalClipLoss()
    for images, texts in loader:
        optimizer.zero_grad()
        image_features, text_features, logit_scale = model(images, texts)
        loss = criterion(image_features, text_features, logit_scale)
        loss.backward()
        optimizer.step()
