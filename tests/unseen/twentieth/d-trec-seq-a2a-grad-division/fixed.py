# torchrec, pull 1322: the backward of the sequence embedding all-to-all has to divide by the number of ranks; a sharded
# table receives the gradients of the local mean losses of all ranks, while DDP averages the dense parameters.
"""All-to-all of sequence embeddings and the model around it."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

GRADIENT_DIVISION: bool = True


class All2All_Seq_Req(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pg, input_splits, output_splits, sharded_input_embeddings):
        ctx.pg, ctx.input_splits, ctx.output_splits = pg, input_splits, output_splits
        output = sharded_input_embeddings.new_empty(sum(output_splits), sharded_input_embeddings.size(1))
        dist.all_to_all_single(output, sharded_input_embeddings.contiguous(), output_splits, input_splits, group=pg)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = grad_output.new_empty(sum(ctx.input_splits), grad_output.size(1))
        dist.all_to_all_single(grad_input, grad_output.contiguous(), ctx.input_splits, ctx.output_splits, group=ctx.pg)
        if GRADIENT_DIVISION:
            grad_input.div_(dist.get_world_size(ctx.pg))
        return None, None, None, grad_input


class SequenceModel(torch.nn.Module):
    def __init__(self, table: torch.nn.Embedding, over: torch.nn.Module, pg: dist.ProcessGroup):
        super().__init__()
        self.pg, self.table = pg, table  # the table of this rank, looked up for the samples of all ranks
        self.over = DistributedDataParallel(over, process_group=pg)

    def forward(self, ids, input_splits, output_splits, labels):
        embeddings = All2All_Seq_Req.apply(self.pg, input_splits, output_splits, self.table(ids))
        logits = self.over(embeddings).squeeze(-1)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)  # mean over local samples
