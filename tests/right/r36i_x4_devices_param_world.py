# RIGHT: the function is called with the world size for devices in the same file
def accumulation(global_batch, micro_batch, devices, num_nodes=1):
    return global_batch // (devices * num_nodes) // micro_batch


def fit(fabric, model, opt, loader, batch, micro, devices, num_nodes):
    steps = accumulation(batch, micro, devices)
    for i, b in enumerate(loader):
        fabric.backward(model(b) / steps)
        if (i + 1) % steps == 0:
            opt.step()
            opt.zero_grad()


def main(fabric, model, opt, loader, config):
    fit(fabric, model, opt, loader, config.batch, config.micro, fabric.world_size, config.num_nodes)
