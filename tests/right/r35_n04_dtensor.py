def clip_grad_norm(parameters, max_norm, tp_group):
    """Gradients are DTensors: their norms are those of the whole tensors."""
    matrices, vectors = [], []
    for p in parameters:
        square = p.grad.norm().full_tensor() ** 2
        if p.ndim == 2:
            matrices.append(square)
        else:
            vectors.append(square)
    total = sum(matrices) + sum(vectors)
    norm = total**0.5
    for p in parameters:
        p.grad.mul_(min(1.0, max_norm / norm))
    return norm
