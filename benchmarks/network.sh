#!/bin/sh
# All measurements of the network, on a quiet machine with two cores or more: about 70 minutes.
# The lab needs root or user namespaces. Summaries go to results/lab.
set -eu
cd "$(dirname "$0")/.."
repro="${REPRO:-uv run repro}"
lab=results/lab
calibrated=network=$lab/network.yaml

# 30 s: alpha and beta of the lab's links, beside the paper's fit.
$repro bench network --out $lab

# 8 min: all algorithms, sizes and numbers of nodes, against the model, the bound and the interfaces' counters.
$repro bench collectives $calibrated --out $lab/collectives.jsonl

# 2 min: any P.
$repro bench collectives nodes=3,5,6,7,12,31 $calibrated --parameters 14.7M --out $lab/any_p.jsonl

# 6 min: PyTorch's DDP and its hooks.
$repro bench collectives algo=ddp algo.hook=none,fp16,powersgd nodes=2,4,8 $calibrated \
    --parameters 2.7M,14.7M --out $lab/ddp.jsonl

# 3 min: a tenth of the rate, at which two cores keep up with more ranks.
slow=$lab/ethernet100m
$repro bench network network=ethernet100m --out $slow
$repro bench collectives algo=gtopk,gtopk_butterfly nodes=4,8 network=$slow/network.yaml \
    --parameters 14.7M,25.6M,61.1M --out $slow/collectives.jsonl

# 6 min: real iterations of 8 nodes at 1 Gbps: compute, compress and communicate measured.
$repro run experiment=lab

# 40 min: ten ways to relax S-SGD, on VGG-16, 4 and 8 nodes, 1 Gbps and 100 Mbps.
$repro run experiment=relaxations
