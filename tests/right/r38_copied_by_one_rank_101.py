import torch
import torch.nn.functional as F
from apex.transformer import parallel_state, tensor_parallel


def test_fused_mlp(model, in_features, out_features, has_bias2, sequence_parallel, device, dtype):
    rank = parallel_state.get_tensor_model_parallel_rank()
    torch.random.manual_seed(0)
    x_pt = torch.randn(64, in_features, device=device, dtype=dtype, requires_grad=True)
    if sequence_parallel:
        x = tensor_parallel.scatter_to_sequence_parallel_region(x_pt).detach().clone().requires_grad_()
    else:
        x = x_pt.detach().clone().requires_grad_()
    # a whole reference model, the same on every rank
    model_pt_fc1 = torch.nn.Linear(in_features, out_features, device=device, dtype=dtype)
    model_pt_fc2 = torch.nn.Linear(out_features, in_features, bias=has_bias2, device=device, dtype=dtype)
    with torch.no_grad():
        if has_bias2 and rank == 0:  # the part of rank 0 alone has the bias: it is summed
            model.fc2.bias.copy_(model_pt_fc2.bias)
    out = model(x)
    out_pt = model_pt_fc2(F.gelu(model_pt_fc1(x_pt), approximate="tanh"))
    out_pt.backward(torch.ones_like(out_pt))
    return out, x_pt.grad
