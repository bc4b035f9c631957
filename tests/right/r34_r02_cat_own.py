import torch
import torch.distributed as dist


def gather_features(image_features, text_features, rank, world):
    images = [torch.zeros_like(image_features) for _ in range(world)]
    texts = [torch.zeros_like(text_features) for _ in range(world)]
    dist.all_gather(images, image_features)
    dist.all_gather(texts, text_features)
    images[rank] = image_features
    all_text = torch.cat(texts)
    n = text_features.size(0)
    all_text = torch.cat([all_text[: rank * n], text_features, all_text[(rank + 1) * n :]])
    return torch.cat(images), all_text
