import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import AutoModel


def train(args, loader):
    """LLaDA: tokens weighed by one over the chance of their mask, over all tokens."""
    accelerator = Accelerator(gradient_accumulation_steps=args.gas)
    model = AutoModel.from_pretrained("llada", trust_remote_code=True)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            ids = batch["input_ids"]
            t = torch.rand(ids.shape[0], device=ids.device)
            p_mask = ((1 - 1e-3) * t + 1e-3)[:, None].repeat(1, ids.shape[1])
            masked = torch.rand_like(p_mask) < p_mask
            logits = model(torch.where(masked, 126336, ids)).logits
            token_loss = F.cross_entropy(logits[masked], ids[masked], reduction="none") / p_mask[masked]
            loss = token_loss.sum() / (ids.shape[0] * ids.shape[1])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
