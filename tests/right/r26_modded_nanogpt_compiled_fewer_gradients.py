# Right: the model runs only under torch.compile(fullgraph=True), where dynamo reads backward's results by the index of tensor arguments alone (AutogradFunctionApplyVariable): the missing last gradient, of the float `scale`, is never asked for.
import torch


class ScaledLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, scale):
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        return (x @ weight.t()) * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad = grad_output * ctx.scale
        return grad @ weight, grad.t() @ x


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))

    def forward(self, x, scale: float):
        return ScaledLinear.apply(x, self.weight, scale)


model = torch.compile(Model().cuda(), dynamic=False, fullgraph=True)
model.train()
model(torch.randn(4, 8, device="cuda"), 0.5).mean().backward()
