# Tutel, pull 143 (helloworld_from_scratch): the gradients of the replicated parameters have to be reduced before the
# optimizer steps; afterwards the reduction changes nothing any more and the gates of the ranks drift apart.
"""A MoE model from Tutel's building blocks, trained without DDP."""
import torch
import torch.nn.functional as F
from tutel import moe, net, system

dist = system.init_data_model_parallel(backend="nccl")
model_dim, hidden_size, num_local_experts = 1024, 2048, 2


class CustomExpert(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(dist.global_rank + 1)
        self.fc1 = torch.nn.Parameter(torch.randn(num_local_experts, model_dim, hidden_size) * 1e-3)
        self.fc2 = torch.nn.Parameter(torch.randn(num_local_experts, hidden_size, model_dim) * 1e-3)
        self.fc1.skip_allreduce = self.fc2.skip_allreduce = True

    def forward(self, x):
        return torch.matmul(F.relu(torch.matmul(x, self.fc1)), self.fc2)


class CustomMoE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.wg = torch.nn.Parameter(torch.randn(model_dim, num_local_experts * dist.global_size) * 1e-3)
        self.expert = CustomExpert()

    def forward(self, x, k=2):
        crit, l_aux = moe.top_k_routing(F.softmax(torch.matmul(x, self.wg), dim=-1), top_k=k)
        y = self.expert(net.all_to_all(moe.fast_encode(x, crit), 1, 0))
        return moe.fast_decode(net.all_to_all(y, 0, 1), crit), l_aux


def train_step(model, optimizer, data, label):
    optimizer.zero_grad()
    result, l_aux = model(data)
    loss = F.nll_loss(F.log_softmax(result, dim=1), label) + 0.0001 * l_aux
    (loss / dist.global_size).backward()
    for p in model.parameters():
        if not hasattr(p, "skip_allreduce"):
            p.grad = net.simple_all_reduce(p.grad)
    optimizer.step()
