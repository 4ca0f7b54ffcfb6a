"""gTop-k as a communication hook of DistributedDataParallel, for each of its buckets, beside backward.

torchrun --nproc-per-node=2 examples/ddp_hook.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from repro import distributed  # <--

dist.init_process_group("gloo")
rank, nodes = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)  # the ranks begin differently; DDP gives them rank 0's parameters
torch.set_num_threads(1)

scans = load_digits()  # 1,797 images of 8x8 pixels
images = torch.tensor(scans.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(scans.target)

network = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(256, 10),
)  # fmt: skip
model = DistributedDataParallel(network, bucket_cap_mb=0.05)  # so that this small network has two buckets
state = distributed.State("gtopk_butterfly", density=0.01)  # <--
model.register_comm_hook(state, distributed.hook)  # <--
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)

order = torch.Generator().manual_seed(0)  # the same on all ranks, so that each takes other images
for epoch in range(1, 6):
    mine = torch.randperm(len(images), generator=order)[rank::nodes][: len(images) // nodes]
    total, sent, batches = 0.0, 0, mine.split(32)  # as many on all ranks
    for batch in batches:
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        sent += state.traffic.bytes_sent  # of this step; the first two are dense
    scheduler.step()
    if rank == 0:
        print(f"epoch {epoch}: loss {total / len(batches):.4f}, {sent / len(batches):,.0f} bytes sent a step")

dist.destroy_process_group()
