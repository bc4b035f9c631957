import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch import nn


def gather_rows(image_features, text_features, rank, world_size):
    gi = [torch.zeros_like(image_features) for _ in range(world_size)]
    gt = [torch.zeros_like(text_features) for _ in range(world_size)]
    dist.all_gather(gi, image_features)
    dist.all_gather(gt, text_features)
    gi[rank], gt[rank] = image_features, text_features
    return torch.cat(gi), torch.cat(gt)


def gather_targets(image_embeds, text_embeds, world_size, rank):
    gi = [torch.zeros_like(image_embeds) for _ in range(world_size)]
    dist.all_gather(gi, image_embeds)
    gi = [*gi[:rank], image_embeds, *gi[rank + 1:]]
    gt = [torch.zeros_like(text_embeds) for _ in range(world_size)]
    dist.all_gather(gt, text_embeds)
    gt = gt[:rank] + [text_embeds] + gt[rank + 1:]
    return torch.cat(gi), torch.cat(gt)


def gather_one(student_embeds, doc_embeds):
    """Documents come from an index and have no gradient."""
    rows = torch.cat(torch.distributed.nn.functional.all_gather(student_embeds))
    docs = torch.cat(torch.distributed.nn.functional.all_gather(doc_embeds))
    return rows, docs


def put_first(image_features, text_features, rank, world):
    gi = [torch.empty_like(image_features) for _ in range(world)]
    dist.all_gather(gi, image_features)
    gi[rank] = image_features
    gt = [torch.empty_like(text_features) for _ in range(world)]
    dist.all_gather(gt, text_features)
    gt.pop(rank)
    gt.insert(rank, text_features)
    return torch.cat(gi), torch.cat(gt)


def put_cat(image_features, text_features, rank, world):
    gi = [torch.empty_like(image_features) for _ in range(world)]
    dist.all_gather(gi, image_features)
    gi[rank] = image_features
    gt = [torch.empty_like(text_features) for _ in range(world)]
    dist.all_gather(gt, text_features)
    return torch.cat(gi), torch.cat([text_features] + gt[:rank] + gt[rank + 1:])
