#!/usr/bin/env bash
# The runs of a manifest on this machine, without SLURM, N at a time:  launchers/local.sh MANIFEST [N]
# What is done is not run again, so that the same command goes on after an interruption.
set -euo pipefail

manifest=${1:?"usage: local.sh MANIFEST [runs at a time]"}
at_once=${2:-1}
[[ -f $manifest && -r $manifest ]] || { echo "local.sh: there is no manifest $manifest: repro launch writes one, and says where" >&2; exit 2; }

# The Python that has the suite: the one that is named, the checkout's own, the one on the PATH, or uv's.
script=${BASH_SOURCE[0]}
here=$(cd "${script%"${script##*/}"}.." && pwd)
if [[ -n ${PYTHON:-} ]]; then
    python=("$PYTHON")
elif [[ -x $here/.venv/bin/python ]]; then
    python=("$here/.venv/bin/python")
elif command -v python >/dev/null && python -c "import repro.cli" 2>/dev/null; then
    python=(python)
elif [[ -f $here/pyproject.toml ]] && command -v uv >/dev/null; then
    python=(uv run --project "$here" python)
else
    echo "local.sh: no Python with this suite: type PYTHON=/path/to/venv/bin/python $0 $*" >&2
    exit 2
fi

# Only line numbers pass through the shell: repro reads the line itself. A last line may lack its end.
lines=0
while IFS= read -r line || [[ -n $line ]]; do lines=$((lines + 1)); done <"$manifest"
# xargs gives up where a command dies by a signal, as by the kernel where memory is short: the others are to go on.
# It takes this script's place, so that to end the script is to begin no other run. Ctrl-C is the runs' to hear, which
# save; xargs waits for them, as a second one is theirs too, and begins no other after one that was told to stop (255).
trap '' INT
exec xargs -r -n 1 -P "$at_once" bash -c '"$@" || { (($? == 130)) && exit 255; exit 1; }' run "${python[@]}" -m repro run --manifest "$manifest" --line < <(seq "$lines")
