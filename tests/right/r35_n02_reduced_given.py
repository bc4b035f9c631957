def clip(parameters, squares, max_norm, ep_group):
    """`squares` has the sums of squares of each parameter over the ranks that have a part of it."""
    dense, experts = 0.0, 0.0
    for p in parameters:
        if hasattr(p, "ep_rank"):
            experts += squares[p]
        else:
            dense += squares[p]
    norm = (dense + experts) ** 0.5
    for p in parameters:
        p.grad.mul_(min(1.0, max_norm / norm))
