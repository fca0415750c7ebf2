"""What `run`, `resume` and `compare` have in common: the words of a job, its trial, and the run with its progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from subbit.cli.consoles import note, say
from subbit.cli.telling import Teller
from subbit.core.errors import ConfigError
from subbit.core.garbage import uncollected


def file_and_words(words: list[str] | None) -> tuple[dict[str, Any], list[str]]:
    from subbit.config.resolve import read_toml

    words = words or []
    if words and "=" not in words[0]:
        return read_toml(Path(words[0])), words[1:]
    for word in words:
        if word.endswith(".toml") and "=" not in word:
            raise ConfigError(f"{word}: a TOML file comes first, before key=value words")
    return {}, words


def announce(values: dict[str, Any], words: list[str]) -> None:
    """The first line of a run, before anything that takes long is imported. An unknown method is left to the error."""
    from subbit.config.schema import RunConfig
    from subbit.core.values import split_assignment
    from subbit.methods.names import METHODS

    given = {**values, **dict(split_assignment(word) for word in words)}
    method, model, dataset = (str(given.get(key, getattr(RunConfig, key))) for key in ("method", "model", "dataset"))
    if METHODS.has(method):
        note(f"{method} on {model}, {dataset}: loading PyTorch")


@contextmanager
def workers_of(settings: Any, teller: Teller) -> Iterator[None]:
    """Around the run of a command that has computed nothing yet: its workers need not import again what it imported."""
    with ExitStack() as stack:
        if settings.run.workers > 1 and settings.run.engine == "simulator":
            with uncollected():
                import subbit.runtime.run  # noqa: F401  # What the workers need.
                from subbit.core.registry import is_ours
                from subbit.methods.names import find_method
                from subbit.runtime.nursery import forked_nursery

            method = find_method(settings.run.method)
            draws_masks = is_ours(method) and not method.trains_weights(settings.parameters)
            with teller.silent():
                stack.enter_context(forked_nursery(kernels=draws_masks))
        yield


def build_and_try(settings: Any) -> Any:
    """The problem, after a trial of the job, so that one that cannot work leaves no folder behind."""
    from dataclasses import replace

    from subbit.runtime.trial import try_job

    if settings.run.engine == "deployment":
        raise ConfigError(
            "engine=deployment: such a run starts, and goes on where it stopped, with flwr run APP NAME, "
            "as subbit flower certs prints it"
        )
    # What makes no difference to the problem is left out, so that the contenders of a comparison share it.
    problem = _problem(replace(settings.run, name="auto", method="", preset="default"))
    try_job(problem, settings)
    return problem


@lru_cache(maxsize=1)
def _problem(run: Any) -> Any:
    from subbit.runtime.problem import build_problem

    return build_problem(run)


def run_told(
    settings: Any, teller: Teller, *, split: bool = True, resume: Path | None = None
) -> tuple[dict[str, Any], Path]:
    """Build the problem and run it; returns the summary and the run folder. `split`: print which client has what."""
    with uncollected():
        from subbit.runtime.folder import RunFolder
        from subbit.runtime.run import run_job
        from subbit.runtime.side_files import Split

    problem = build_and_try(settings)
    divided = problem.split_summary()
    told = divided.as_text()
    folder = RunFolder.open(resume) if resume else RunFolder.create(settings, told, Split.of(divided))
    if split:
        say(told)
    teller.begin(folder.settings.run.name, settings.run.rounds)
    with folder.interruptible():
        if settings.run.engine == "flower":
            from subbit.flower.simulation import simulate

            found = simulate(problem, folder, resume=resume is not None, report=teller.round)
        else:
            found = run_job(problem, folder.settings, folder, resume=resume is not None, report=teller.round)
    return found.summary, folder.path
