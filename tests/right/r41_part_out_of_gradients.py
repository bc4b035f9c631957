from torch.distributed.tensor import DTensor, Partial, Replicate


def grad_norm(g: DTensor, mesh):
    whole = g.full_tensor()
    part = whole.chunk(mesh.size())[mesh.get_local_rank()].pow(2).sum()
    return DTensor.from_local(part, mesh, [Partial()]).full_tensor().sqrt()
