#!/bin/sh
# How far the lab's seconds depend on the dilation of time that they were measured at: about 25 minutes on two cores.
# `repro plot tables --only dilation` compares them. Needs root or user namespaces; rows come as they are measured.
set -eu
cd "$(dirname "$0")/.."
repro="${REPRO:-uv run repro}"
held="cluster.alpha=network nodes=4,8 cluster.dilation=1,8,16,32 --parameters 270k,2.7M,25.6M"

# Alpha as it is set, measured back.
$repro bench network cluster.dilation=8 --out results/lab/dilated

# The same collectives without dilation, whose links this machine hardly carries, and at several dilations.
$repro bench collectives algo=dense $held --out results/lab/dilation_dense.jsonl
$repro bench collectives algo=topk,gtopk,gtopk_butterfly $held --repeats 30 --out results/lab/dilation.jsonl

# The dilations that faster networks take.
$repro bench collectives algo=dense,topk,gtopk,gtopk_butterfly network=ethernet100g nodes=4 \
    cluster.dilation=64,128,256,512,1024 --parameters 2.7M --repeats 5 --out results/lab/dilation_100g.jsonl

# The paper's 32 nodes beside the model and the bound.
$repro bench collectives algo=dense,topk,gtopk,gtopk_butterfly nodes=32 cluster.dilation=8 \
    --parameters 270k,2.7M,14.7M --repeats 20 --out results/lab/dilation_32.jsonl
