# Source: mlfoundations/open_clip commit 5f9a978, src/training/train.py (evaluate)
# The evaluation loss is averaged per rank over the samples this rank saw, and the means are
# averaged over the ranks. The ranks see different numbers of samples, so this is not the loss
# over the evaluation set.
# Repair: sum both the losses and the sample counts over the ranks, then divide.
import logging

import torch
import torch.distributed
import torch.nn.functional as F

from training.distributed import is_master
from training.precision import get_autocast


def evaluate(model, data, epoch, args, tb_writer=None):
    metrics = {}
    device = torch.device(args.device)
    model.eval()
    autocast = get_autocast(args.precision)

    # webdataset shards are split over the ranks: the number of samples differs
    dataloader = data['val'].dataloader
    num_samples = 0
    cumulative_loss = torch.zeros((), device=device)
    with torch.no_grad():
        for images, texts in dataloader:
            images = images.to(device=device, non_blocking=True)
            texts = texts.to(device=device, non_blocking=True)
            with autocast():
                image_features, text_features, logit_scale = model(images, texts)
                logits_per_image = logit_scale.mean() * image_features @ text_features.t()
                batch_size = images.shape[0]
                labels = torch.arange(batch_size, device=device).long()
                total_loss = (
                    F.cross_entropy(logits_per_image, labels) +
                    F.cross_entropy(logits_per_image.t(), labels)
                ) / 2
            cumulative_loss += total_loss * batch_size
            num_samples += batch_size

    if args.distributed_evaluation:
        total_num_samples = torch.tensor([num_samples], device=device)
        torch.distributed.all_reduce(total_num_samples)
        num_samples = total_num_samples.item()
        torch.distributed.all_reduce(cumulative_loss)
    loss = cumulative_loss / num_samples
    metrics.update({"val_loss": loss.item(), "epoch": epoch, "num_samples": num_samples})

    if is_master(args):
        logging.info(f"Eval Epoch: {epoch} " + "\t".join([f"{k}: {round(v, 4):.4f}" for k, v in metrics.items()]))
        if tb_writer is not None:
            tb_writer.add_scalar("val/val_loss", metrics["val_loss"], epoch)
    return metrics
