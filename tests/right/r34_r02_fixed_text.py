import torch
import torch.distributed.nn
from torch import nn


class Gather(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        for p in model.text.parameters():
            p.requires_grad_(False)

    def forward(self, images, tokens):
        image_features = self.model.image(images)
        text_features = self.model.text(tokens)
        return gather_features(image_features, text_features)


def gather_features(image_features, text_features):
    # the text tower is pretrained and stays as it is
    all_image_features = torch.cat(torch.distributed.nn.all_gather(image_features), dim=0)
    all_text_features = torch.cat(torch.distributed.nn.all_gather(text_features.detach()), dim=0)
    return all_image_features, all_text_features
