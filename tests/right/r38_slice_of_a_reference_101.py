import torch
import torch.nn.functional as F
from apex.transformer import parallel_state, tensor_parallel


def test(dim, hidden, sequence_parallel):
    rank = parallel_state.get_tensor_model_parallel_rank()
    part = hidden // parallel_state.get_tensor_model_parallel_world_size()
    x_ref = torch.randn(64, dim, device="cuda", requires_grad=True)
    if sequence_parallel:
        x = tensor_parallel.scatter_to_sequence_parallel_region(x_ref).detach().clone().requires_grad_()
    else:
        x = x_ref.detach().clone().requires_grad_()
    ref_fc1 = torch.nn.Linear(dim, hidden, device="cuda")
    ref_fc2 = torch.nn.Linear(hidden, dim, device="cuda")
    w2 = ref_fc2.weight[:, rank * part : (rank + 1) * part].detach().clone()
    out_ref = ref_fc2(F.gelu(ref_fc1(x_ref), approximate="tanh"))
    out_ref.backward(torch.ones_like(out_ref))
    return x, w2, x_ref.grad
