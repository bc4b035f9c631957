# RIGHT: per-layer clipping: each layer is whole on its stage, its norm needs no other stage
import torch


@torch.no_grad()
def clip_layers(layers, max_norm, pp_group=None):
    """Per-layer clipping: a layer is whole on its stage."""
    for layer in layers:
        grads = [p.grad for p in layer.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        torch.nn.utils.clip_grads_with_norm_(layer.parameters(), max_norm, norm)


def step(schedule, model, optimizer, mesh):
    schedule.step()
    clip_layers(model.layers, 1.0, pp_group=mesh["pp"].get_group())
    optimizer.step()
