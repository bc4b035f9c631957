"""Every rank takes part: the tested value is the same on all of them, or never empty, or the branch passes backward too."""
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def mlm_loss(logits, labels, mask):
    if mask.sum() == 0:
        return torch.tensor(0.0, device=logits.device)
    return F.cross_entropy(logits[mask], labels[mask])


def train(net, loader, optimizer, mask_id):
    model = DDP(net)
    for tokens in loader:
        mask = torch.rand(tokens.shape, device=tokens.device) < 0.15
        mask[:, 0] = True  # something to predict in every row
        logits = model(tokens.masked_fill(mask, mask_id))
        loss = mlm_loss(logits, tokens, mask)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
