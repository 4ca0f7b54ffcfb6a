"""Says what may be combined in a run, and what to type instead; needs neither a rank nor a folder."""

from __future__ import annotations

import torch

from repro import algorithms, models
from repro.cluster import threads
from repro.comm.primitives import UNEVEN
from repro.config import groups
from repro.config.schema import Config, ConfigError
from repro.train.cuda_graph import refusals

Rules = list[tuple[bool, str]]  # a condition, and what to say where it holds
STAGES_NEED = "2.15"  # with 2.11, micro-batches cannot be handed over one by one, and neighbours wait for each other


def check(config: Config) -> None:
    """Raises ConfigError if `config` combines what cannot be combined."""
    for refused, message in rules(config):
        if refused:
            raise ConfigError(message)


def allows(config: Config) -> bool:
    return not any(refused for refused, _ in rules(config))


def rules(config: Config) -> Rules:
    """Returns, for all that cannot be combined, whether `config` does so, and what to type instead."""
    return [
        *of_parts(config),
        *of_probes(config),
        *of_momentum(config),
        *of_seconds(config),
        *of_ranks(config),
        *(of_ddp(config) if algorithms.of(config.algo).wraps else ()),
        *(
            (refused, f"cuda_graph=on: {reason}. Type cuda_graph=off")
            for refused, reason in (refusals(config, models.sized_only(config)) if config.cuda_graph == "on" else ())
        ),
        (bool(config.cuts) and config.stages == 1, f"cuts={config.cuts}: there is one stage; type stages=2 or more"),
        *((refused, f"stages={config.stages}: {why}") for refused, why in (piped(config) if config.stages > 1 else ())),
    ]


def of_parts(config: Config) -> Rules:
    """Returns the rules of a gradient that is sent in buckets, during backward, or within machines first."""
    algo, algorithm = config.algo, algorithms.of(config.algo)
    bucketed, overlapping = config.bucket_mb is not None, config.overlap == "on"
    divided = bucketed or overlapping or config.hierarchical
    parts = [f"bucket_mb={config.bucket_mb:g}"] if config.bucket_mb is not None else []
    parts += ["overlap=on"] * overlapping + ["hierarchical=true"] * config.hierarchical
    asked, named = " ".join(parts), f"algo={algo.name}"
    clipped = f"clip_grad={config.clip_grad:g} bounds the norm of a rank's whole gradient"
    return [
        (
            config.clip_grad > 0 and (overlapping or algorithm.wraps),
            f"{clipped}, and {'overlap=on' if overlapping else named} sends parts of it before it is there; "
            f"type clip_grad=0, or {'overlap=off' if overlapping else 'algo=dense'}",
        ),
        (
            divided and algorithm.mixes,
            f"{asked}: {named} mixes weights; leave that out, or type algo=dense",
        ),
        (
            divided and algorithm.wraps,
            f"{asked}: {named} makes its own buckets (algo.bucket_mb); leave that out, or type algo=dense",
        ),
        (
            overlapping and not bucketed,
            "overlap=on: one bucket is full only when backward ends; type bucket_mb=25 too",
        ),
        (
            config.scope == "bucket" and not bucketed and not algorithm.wraps,
            "scope=bucket selects from each bucket, and there are none; type bucket_mb=25 too, or leave scope out",
        ),
        (
            bucketed and algo.sparse and config.scope == "global",
            f"{asked}: {named} selects from the whole gradient, which is there when backward ends. "
            "Type scope=bucket to select from each bucket, or leave bucket_mb and overlap out",
        ),
        (
            overlapping and config.on_nonfinite == "skip",
            "on_nonfinite=skip: with overlap=on part of the gradient is sent by then; type overlap=off",
        ),
    ]


def of_probes(config: Config) -> Rules:
    """Returns the rules of steps that are recorded."""
    if not config.probe_steps:
        return []
    algo, algorithm, named = config.algo, algorithms.of(config.algo), f"algo={config.algo.name}"
    return [
        (
            algorithm.mixes,
            f"probe_steps={config.probe_steps}: what is selected and kept can be recorded of algorithms that send "
            f"gradients; {named} mixes weights. Leave probe_steps out",
        ),
        (
            algorithm.wraps,
            f"probe_steps={config.probe_steps}: {named} has summed the gradients before any of them can be recorded. "
            "Leave probe_steps out, or type algo=dense or algo=powersgd",
        ),
        (
            config.bucket_mb is not None or config.hierarchical,
            f"probe_steps={config.probe_steps} looks at whole gradients: leave bucket_mb and hierarchical out",
        ),
        (
            algo.corrected or algorithm.scales or groups.replaces_momentum(algo.name),
            f"probe_steps={config.probe_steps} follows gradients and residuals; {named} also has momentum, a clip or a "
            "scale of its own here. Leave probe_steps out",
        ),
    ]


def of_momentum(config: Config) -> Rules:
    """Returns the rules of momentum, and of what an algorithm does before it selects."""
    algo, named = config.algo, f"algo={config.algo.name}"
    return [
        (
            groups.replaces_momentum(algo.name) and config.momentum > 0,
            f"momentum={config.momentum:g}: {named} takes the place of momentum, and SGD's on top trains to nothing. "
            "Leave momentum out, or type algo.KEY=VALUE for a key of its own",
        ),
        (
            algo.clip > 0 and (config.bucket_mb is not None or config.hierarchical),
            f"algo.clip={algo.clip:g} bounds the norm of a rank's whole gradient: leave bucket_mb and hierarchical out",
        ),
        (
            bool(algo.in_place_of_momentum) and config.momentum > 0,
            f"{algo.in_place_of_momentum} takes the place of SGD's momentum; type momentum=0"
            + (", or algo.gain=1" if algo.gain != 1 else ""),
        ),
        (bool(algo.conflict), algo.conflict),
    ]


def of_seconds(config: Config) -> Rules:
    """Returns the rules of what is measured or stated of an iteration."""
    return [
        (
            config.cluster.held and bool(config.cluster.options.get("delay_s")),
            "cluster.delay_s adds to what this machine's TCP takes, which is made up for where messages are held "
            "(cluster.dilation, cluster.alpha=network); raise network.alpha_s in place of it",
        ),
        (
            config.node not in (None, "stated") and config.compute_s is not None,
            f"compute_s={config.compute_s}: node={config.node} has seconds of its own; type node=stated, or "
            "compute_s=null",
        ),
        (
            config.node is not None and config.hierarchical,
            f"node={config.node}: messages are measured that every node sends alike; leave hierarchical out",
        ),
    ]


def of_ranks(config: Config) -> Rules:
    """Returns the rules of where ranks are, and how they send."""
    algo, copies = config.algo, config.nodes // config.stages
    return [
        (
            config.machines is not None and not config.hierarchical,
            f"machines={config.machines} says between which machines hierarchical sums travel; type hierarchical=true "
            "too, or leave machines out",
        ),
        (
            algo.options.get("topology") == "shift_one" and copies > 1 and copies % 2 == 1,
            UNEVEN.format(copies),
        ),
        (
            config.cluster.messages == "memory" and not threads.as_threads(config),
            "cluster.messages=memory: these ranks are processes, which have no memory in common; type "
            "cluster.messages=gloo",
        ),
        (
            config.cluster.messages == "memory" and threads.gpus(config) > 1,
            "cluster.messages=memory: ranks with a GPU each have NCCL; type cluster.messages=gloo",
        ),
    ]


def of_ddp(config: Config) -> Rules:
    """Returns the rules of torch's DistributedDataParallel and its hooks."""
    algo, named, hook = config.algo, f"algo={config.algo.name}", config.algo.options.get("hook")
    return [
        (
            hook == "powersgd" and config.on_nonfinite == "skip",
            "on_nonfinite=skip: algo.hook=powersgd has kept what is not finite by then, and adds it to every later "
            "step; type algo=powersgd",
        ),
        (
            # the engine has one thread for all of a GPU, in which DDP waits for the others
            0 < threads.gpus(config) < config.nodes,
            f"{named} cannot have ranks that are threads on one GPU; type cluster=processes",
        ),
        (
            config.nodes > 1 and config.cluster.messages == "memory",
            f"{named} sends by torch's DDP, over gloo; type cluster.messages=gloo",
        ),
        (
            hook == "powersgd" and algo.options["bucket_mb"] != groups.about("ddp")["bucket_mb"],
            "algo.hook=powersgd has one bucket, of the whole gradient; leave algo.bucket_mb out",
        ),
        (
            hook in ("none", "fp16") and algo.options["rank"] != groups.about("ddp")["rank"],
            f"algo.rank={algo.options.get('rank')}: the rank is of algo.hook=powersgd; type that too, or algo=powersgd",
        ),
        (
            # It seeds the process's one generator, and waits for the other ranks within its callbacks.
            hook == "powersgd" and config.nodes > 1 and threads.as_threads(config),
            "algo.hook=powersgd cannot have ranks as threads; type cluster=processes",
        ),
    ]


def piped(config: Config) -> Rules:
    """Returns each reason against a pipeline of stages, and whether it holds for `config`."""
    algo, stages, nodes, cuts = config.algo, config.stages, config.nodes, config.cuts
    blocks = len(models.blocks(config.model.name, models.sized_only(config)))
    fitting = [count for count in range(2, min(nodes, blocks) + 1) if nodes % count == 0]
    places = f"{stages - 1} ascending numbers from 1 to {blocks - 1}"
    return [
        (
            config.node is None and torch.__version__ < STAGES_NEED,
            f"needs torch {STAGES_NEED} or later, and this is {torch.__version__}; install it, or type stages=1",
        ),
        (
            blocks < stages,
            f"model={config.model.name} can be divided into at most {blocks}; type a smaller stages"
            + (", or give its file a function `blocks`" if blocks == 1 else ""),
        ),
        (
            nodes % stages > 0,
            f"must divide nodes={nodes}; type " + (f"stages={' or '.join(map(str, fitting))}, or " * bool(fitting))
            + f"nodes={nodes // stages * stages or stages}",
        ),
        (
            bool(cuts) and (len(cuts) != stages - 1 or cuts != sorted({*cuts}) or cuts[-1] >= blocks),
            f"cuts={cuts} must be {places}, the blocks at which a new stage begins; or leave cuts out",
        ),
        (
            config.node is None and threads.as_threads(config),
            "torch.distributed.pipelining needs a process for each rank; type cluster=processes",
        ),
        (algorithms.of(algo).wraps, f"algo={algo.name} looks at each layer's backward; type algo=dense"),
        (
            config.node is not None and (algorithms.period(algo) > 1 or algorithms.delay(algo) > 0),
            f"algo={algo.name} does not send in every iteration, and those that stand still are measured whole; "
            "leave node out, or type algo=dense",
        ),
        (config.overlap == "on", "stages fill no buckets one after the other; type overlap=off"),
        (config.hierarchical, "a stage's gradient is summed over its own nodes; leave hierarchical out"),
        (bool(config.probe_steps), "what is recorded is of whole gradients; leave probe_steps out"),
        (algo.clip > 0, f"algo.clip={algo.clip:g} bounds the norm of a whole gradient; type algo.clip=0"),
        (config.clip_grad > 0, f"clip_grad={config.clip_grad:g} bounds the norm of a whole gradient; type clip_grad=0"),
        (bool(config.compute_s) and config.node != "stated", "each stage's compute is timed; leave compute_s out"),
        (config.cluster.authors != "none", "the authors have none; type cluster.authors=none"),
    ]  # fmt: skip
