def clip(engine, parameters, max_norm, ep_group):
    assert engine.ep_size == 1, "experts are not split here"
    dense, experts = 0.0, 0.0
    for p in parameters:
        if hasattr(p, "expert"):
            experts += p.grad.norm() ** 2
        else:
            dense += p.grad.norm() ** 2
    norm = (dense + experts) ** 0.5
    for p in parameters:
        p.grad.mul_(min(1.0, max_norm / norm))
