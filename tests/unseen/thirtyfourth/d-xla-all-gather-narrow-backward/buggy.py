# pytorch/xla, issue 5784 - https://github.com/pytorch/xla/issues/5784 (read)
# torch_xla.core.functions.AllGather slices the incoming gradient in backward. Every replica uses all gathered
# rows in its own loss, so contributions of the other replicas to a row are lost.
"""Image-to-text contrastive step on TPU replicas."""
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm


class AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, dim):
        ctx.dim = dim
        ctx.ordinal = xm.get_ordinal()
        ctx.world_size = xm.xrt_world_size()
        return xm.all_gather(input, dim=dim)

    @staticmethod
    def backward(ctx, grad_output):
        slice_size = grad_output.size(ctx.dim) // ctx.world_size
        return grad_output.narrow(ctx.dim, ctx.ordinal * slice_size, slice_size), None  # BUG: not summed over replicas


def train_step(image_encoder, text_encoder, optimizer, images, texts, temperature=0.07):
    optimizer.zero_grad()
    img = F.normalize(image_encoder(images), dim=-1)
    txt = F.normalize(text_encoder(texts), dim=-1)
    all_txt = AllGather.apply(txt, 0)
    logits = img @ all_txt.t() / temperature  # local images against the texts of all replicas
    labels = torch.arange(img.size(0), device=img.device) + xm.get_ordinal() * img.size(0)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    xm.optimizer_step(optimizer)  # averages gradients over replicas
    return loss
