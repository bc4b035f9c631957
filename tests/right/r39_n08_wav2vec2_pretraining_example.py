import torch
import torch.distributed as dist
from accelerate import Accelerator
from transformers import Wav2Vec2ForPreTraining


def multiply_grads(params, c):
    for p in params:
        if p.grad is not None:
            if torch.is_tensor(c):
                c = c.to(p.grad.device)
            p.grad.data.mul_(c)


def main(loader):
    """As in transformers' run_wav2vec2_pretraining_no_trainer.py: summed loss, gradients scaled afterwards."""
    accelerator = Accelerator()
    model = Wav2Vec2ForPreTraining.from_pretrained("patrickvonplaten/wav2vec2-base-v2")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    for step, batch in enumerate(loader):
        num_losses = batch["mask_time_indices"].sum()
        outputs = model(**batch)
        loss = outputs.loss
        accelerator.backward(loss)
        if accelerator.state.num_processes > 1:
            num_losses = accelerator.gather_for_metrics(num_losses).sum()
            multiply_grads(model.parameters(), accelerator.state.num_processes / num_losses)
        else:
            multiply_grads(model.parameters(), 1 / num_losses)
        opt.step()
        opt.zero_grad()
