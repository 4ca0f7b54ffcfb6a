#!/usr/bin/env bash
# The runs of a manifest on this machine, without SLURM, N at a time:  launchers/local.sh MANIFEST [N]
# What is done is not run again, so that the same command goes on after an interruption.
set -euo pipefail

manifest=${1:?"usage: local.sh MANIFEST [runs at a time]"}
at_once=${2:-1}

# Only line numbers pass through the shell: repro reads the line itself.
seq "$(wc -l <"$manifest")" | xargs -n 1 -P "$at_once" "${PYTHON:-python}" -m repro run --manifest "$manifest" --line
