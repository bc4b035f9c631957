# Reduced from Open-Sora-Plan train_t2v_diffusers.py (mindspore-lab/mindone pull request 613, "fix timestep
# sample with seq parallel", and PKU-YuanGroup/Open-Sora-Plan issue 366, read).
# The seed is seed + rank. With sequence parallelism a video's latent frames are spread over the
# group, each rank adds noise to its own frames.
# What happens: the parts of one video are noised for different timesteps and the transformer, which
# sees the whole sequence through the all-to-all, gets different timestep embeddings.
import torch
import torch.nn.functional as F

from opensora.acceleration.communications import prepare_parallel_data
from opensora.acceleration.parallel_states import get_sequence_parallel_state
from opensora.utils.utils import set_seed


def setup(args, accelerator):
    set_seed(args.seed, rank=accelerator.process_index, device_specific=True)


def run(args, accelerator, model, noise_scheduler, optimizer, model_input, cond, attn_mask):
    if get_sequence_parallel_state():
        # [B, C, T, H, W] -> the frames of this rank
        model_input, cond, attn_mask = prepare_parallel_data(model_input, cond, attn_mask)
    noise = torch.randn_like(model_input)
    bsz = model_input.shape[0]
    timesteps = torch.randint(0, noise_scheduler.config.num_train_timesteps, (bsz,), device=model_input.device)  # BUG
    noisy_model_input = noise_scheduler.add_noise(model_input, noise, timesteps)
    model_pred = model(noisy_model_input, timesteps, encoder_hidden_states=cond, attention_mask=attn_mask)[0]
    loss = F.mse_loss(model_pred.float(), noise.float())
    accelerator.backward(loss)
    if accelerator.sync_gradients:
        accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
