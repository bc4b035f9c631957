# mmengine 42dd97d0 (#1208)
"""Evaluation metric over a data set split between ranks."""
import torch.distributed as dist
from mmengine.dist import broadcast_object_list, collect_results, is_main_process


class Accuracy:
    def __init__(self, collect_device="cpu", collect_dir=None):
        self.collect_device, self.collect_dir = collect_device, collect_dir
        self.results = []

    def process(self, data_samples):
        for sample in data_samples:  # this rank's part of the data set
            self.results.append(int(sample["pred_label"] == sample["gt_label"]))

    def compute_metrics(self, results):
        return {"accuracy": 100.0 * sum(results) / len(results)}

    def evaluate(self, size):
        """size: length of the whole data set; the sampler pads it to a multiple of the world size."""
        results = self.results
        if self.collect_device == "cpu":
            results = collect_results(results, size, self.collect_device, tmpdir=self.collect_dir)
        else:
            results = collect_results(results, size, self.collect_device)
        if is_main_process():
            metrics = [self.compute_metrics(results)]
        else:
            metrics = [None]
        broadcast_object_list(metrics)
        self.results.clear()
        return metrics[0]


def val_loop(model, dataloader, metric: Accuracy):
    model.eval()
    for data in dataloader:
        metric.process(model.val_step(data))
    metrics = metric.evaluate(len(dataloader.dataset))
    if dist.get_rank() == 0:
        print(metrics)
    return metrics
