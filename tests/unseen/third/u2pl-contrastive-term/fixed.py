"""Semi-supervised segmentation: supervised, unsupervised and contrastive terms."""
# Source: Haochen-Wang409/U2PL issue 16 (thread quotes the reduction; surroundings from memory)
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def compute_unsupervised_loss(pred, pseudo, drop_percent, entropy):
    thresh = torch.quantile(entropy.flatten(), drop_percent / 100)
    target = pseudo.masked_fill(entropy > thresh, 255)
    return F.cross_entropy(pred, target, ignore_index=255)


def compute_contra_loss(prototypes, anchors, banks, temperature=0.5):
    """InfoNCE of this rank's anchor pixels against class prototypes and a memory bank."""
    loss = prototypes.sum() * 0.0
    for pixels, positive, bank in zip(anchors, prototypes, banks):
        pos = F.cosine_similarity(pixels, positive.unsqueeze(0), dim=-1).unsqueeze(1)
        neg = F.normalize(pixels, dim=-1) @ F.normalize(bank, dim=-1).t()
        logits = torch.cat([pos, neg], dim=1) / temperature
        target = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        loss = loss + F.cross_entropy(logits, target)
    return loss / max(len(anchors), 1)


def train(model: DistributedDataParallel, teacher, loader_l, loader_u, optimizer, cfg, meters):
    world_size = dist.get_world_size()
    for (image_l, label_l), image_u in zip(loader_l, loader_u):
        with torch.no_grad():
            prob_u = teacher(image_u)["pred"].softmax(dim=1)
            entropy = -(prob_u * (prob_u + 1e-10).log()).sum(dim=1)
        outs = model(torch.cat([image_l, image_u]))
        pred_l, pred_u = outs["pred"].split([len(image_l), len(image_u)])
        sup_loss = F.cross_entropy(pred_l, label_l, ignore_index=255)
        unsup_loss = compute_unsupervised_loss(pred_u, prob_u.argmax(dim=1), cfg.drop_percent, entropy)
        contra_loss = compute_contra_loss(outs["prototypes"], outs["anchors"], cfg.memory_bank)
        contra_loss = contra_loss * cfg.contra_weight

        loss = sup_loss + cfg.unsup_weight * unsup_loss + contra_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        for name, term in (("sup", sup_loss), ("unsup", unsup_loss), ("contra", contra_loss)):
            reduced = term.detach().clone()
            dist.all_reduce(reduced)
            meters[name].update(reduced.item() / world_size)
