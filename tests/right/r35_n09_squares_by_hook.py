def clip(parameters, max_norm, ep_group):
    """`p.grad_square` is set by the reduction of gradients, of the whole parameter."""
    dense, experts = 0.0, 0.0
    for p in parameters:
        if p.is_expert:
            experts += p.grad_square
        else:
            dense += p.grad_square
    norm = (dense + experts) ** 0.5
    for p in parameters:
        p.grad.mul_(min(1.0, max_norm / norm))
