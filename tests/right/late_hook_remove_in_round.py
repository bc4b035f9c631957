"""What the hook reads is the same in every round, or the hook is gone before the next one."""
import torch
import torch.distributed as dist


def trace_layers(model, x):
    stats = {}
    for layer in model.layers:
        buf = torch.zeros(1, device=x.device)

        def hook(mod, inp, out):
            buf.add_(out.float().pow(2).mean())
            dist.all_reduce(buf)

        handle = layer.register_forward_hook(hook)
        x = layer(x)
        handle.remove()
        stats[layer] = buf.item() / dist.get_world_size()
    return stats
