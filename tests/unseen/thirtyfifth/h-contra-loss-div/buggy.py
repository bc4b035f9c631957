"""Semi-supervised segmentation step with a pixel contrastive loss."""
# thread: Haochen-Wang409/U2PL#16
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def pixel_contrast(rep, prototypes, labels, temp=0.5):
    rep = F.normalize(rep, dim=-1)
    return F.cross_entropy(rep @ F.normalize(prototypes, dim=-1).t() / temp, labels)


def train(net, loader, prototypes, optimizer, cfg, local_rank):
    model = DDP(net, device_ids=[local_rank])
    # all ranks: equally many images, all pixels labelled, equally many anchors
    for image_l, label_l, image_u, pseudo_u, anchors, anchor_labels in loader:
        out = model(torch.cat([image_l, image_u]))
        pred_l, pred_u = out["pred"].split([len(image_l), len(image_u)])
        sup_loss = F.cross_entropy(pred_l, label_l)
        unsup_loss = F.cross_entropy(pred_u, pseudo_u)
        rep = out["rep"].permute(0, 2, 3, 1).flatten(0, 2)[anchors]
        contra_loss = pixel_contrast(rep, prototypes, anchor_labels)
        dist.all_reduce(contra_loss)
        contra_loss = contra_loss / dist.get_world_size()  # BUG: divides the local gradient, DDP averages anyway
        loss = sup_loss + cfg["unsup_weight"] * unsup_loss + cfg["contra_weight"] * contra_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"sup {sup_loss.item():.3f} contra {contra_loss.item():.3f}")
