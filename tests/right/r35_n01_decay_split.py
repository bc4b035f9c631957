def clip(parameters, max_norm, dp_group):
    """Gradients are averaged over `dp_group` already: all ranks have the same norm."""
    weights, others = 0.0, 0.0
    for p in parameters:
        square = p.grad.float().square().sum()
        if p.ndim > 1:
            weights += square
        else:
            others += square
    norm = (weights + others).sqrt()
    for p in parameters:
        p.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
