import torch
import torch.nn.functional as F
from accelerate import Accelerator
from transformers import Wav2Vec2ForCTC


def train(args, loader):
    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
    model = Wav2Vec2ForCTC.from_pretrained("facebook/wav2vec2-base")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            logp = model(batch["audio"]).logits.log_softmax(-1).transpose(0, 1)
            loss = F.ctc_loss(logp, batch["labels"], batch["in_len"], batch["out_len"], reduction="sum")
            loss = loss / batch["labels"].size(0)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
