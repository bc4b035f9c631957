import torch
import torch.distributed as dist


class SequenceIndex(torch.nn.Module):
    """Numbers of tokens for the log of losses, over all ranks and samples."""

    def __init__(self, model, cp_group):
        super().__init__()
        self.model, self.cp_group = model, cp_group

    def forward(self, tokens, labels):
        losses = self.model(tokens, labels, cp_group=self.cp_group)
        token_ids = torch.arange(tokens.numel()) + dist.get_rank() * tokens.numel()
        return losses, token_ids
