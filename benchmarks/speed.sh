#!/usr/bin/env bash
# Selection, merging and the cost of a P-rank run, as committed in results/speed. 25 to 50 minutes on two cores
# with nothing else running; CIFAR-10 must be prepared (`repro data status`).
set -euo pipefail
cd "$(dirname "$0")/.."
repro=${REPRO:-uv run repro}
out=${OUT:-results/speed}
recorded=$(mktemp -d)
trap 'rm -rf "$recorded"' EXIT

for model in resnet20 vgg16; do
    $repro bench gradient model=$model data=cifar10 --steps 20 --out "$recorded/$model.pt" "$@"
done
for model in resnet50 alexnet; do
    $repro bench gradient model=$model data=synthetic data.image_size=224 data.classes=1000 batch_per_node=8 \
        --steps 8 --out "$recorded/$model.pt"
done
$repro bench selection --out "$out" \
    --recorded "$recorded/resnet20.pt" --recorded "$recorded/vgg16.pt" \
    --recorded "$recorded/resnet50.pt" --recorded "$recorded/alexnet.pt"
$repro bench merge --out "$out"
rm -f "$out/step.jsonl"
$repro bench step model=resnet20 algo=gtopk nodes=32 data=cifar10 --steps 10 --repeats 5 --out "$out" "$@"
$repro bench step model=vgg16 algo=gtopk nodes=8 data=cifar10 --steps 5 --repeats 3 --out "$out" "$@"
for precision in float32 bfloat16; do
    $repro bench step model=resnet20 algo=dense,gtopk nodes=4 precision=$precision data=cifar10 --steps 100 --repeats 5 --out "$out" "$@"
    $repro bench step model=vgg16 algo=dense,gtopk nodes=4 batch_per_node=128 precision=$precision data=cifar10 --steps 4 --repeats 3 --out "$out" "$@"
done
