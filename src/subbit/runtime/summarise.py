"""Builds the summary of a finished run from its events, its ledger and its last state."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from statistics import median
from typing import Any

from subbit.core.errors import ModelError
from subbit.core.randomness import derive_key
from subbit.methods.heads import HEADS
from subbit.models import model_sha256
from subbit.models.select import find_head
from subbit.privacy.report import PrivacyReport, privacy_report
from subbit.runtime.evaluation import Evaluation
from subbit.runtime.events import Before, Event, MainRound
from subbit.runtime.link import SECONDS_PER_HOUR
from subbit.runtime.results import Codecs, Summary
from subbit.runtime.round import ServerState
from subbit.runtime.warn import Setting, find_warnings
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger


def summarise(
    workplace: Workplace,
    state: ServerState,
    ledger: Ledger,
    events: list[Event],
    evaluations: dict[str, Evaluation],
    seconds: float,
) -> Summary:
    run, method, problem = workplace.settings.run, workplace.method("main"), workplace.problem
    workplace.write_network(
        state.method, method.primary_network, derive_key(run.seed, "evaluation", run.rounds), state.head
    )
    workplace.module.eval()
    rounds = [event for event in events if not isinstance(event, Before)]
    main = [event for event in rounds if isinstance(event, MainRound)]
    failures = [failure for event in rounds for failure in event.failures]
    totals, primary = ledger.totals, evaluations[method.primary_network]
    before = next(event.score for event in events if isinstance(event, Before))
    by_round = tuple(event.score for event in main)
    networks = {name: found.score for name, found in evaluations.items()} if len(evaluations) > 1 else {}
    is_accuracy = next(iter(primary.scores)) == "accuracy"
    link = [event.link_seconds for event in rounds if event.link_seconds is not None]
    return Summary(
        name=run.name,
        method=run.method,
        preset=run.preset,
        model=problem.model_name,
        pretrained=problem.pretrained,
        dataset=problem.dataset_name,
        split=problem.split_summary().fingerprint,
        clients=problem.clients,
        participants=method.task.participants,
        rounds=run.rounds,
        seed=run.seed,
        parameters=method.size,
        objective=problem.objective.name,
        score_name=next(iter(primary.scores)),
        higher_is_better=problem.objective.higher_is_better,
        score=primary.score,
        score_before=before,
        scores=primary.scores,
        network=method.primary_network,
        uplink_bpp=ledger.uplink_bpp(method.size),
        downlink_bpp=ledger.downlink_bpp(method.size),
        uplink_bytes=totals.uplink_bytes,
        downlink_bytes=totals.downlink_bytes,
        one_off_bytes=totals.one_off_bytes,
        total_bytes=totals.total_bytes,
        failed_clients=len(failures),
        failures=_counted(failure.cause for failure in failures),
        codecs=Codecs(
            up=tuple(part.codec.name for part in method.up_parts()),
            down=tuple(part.codec.name for part in method.down_parts()),
        ),
        score_by_round=by_round,
        bytes_by_round=tuple(event.total_bytes for event in main),
        seconds=round(sum(event.seconds for event in rounds), 2),
        seconds_this_process=round(seconds, 2),
        model_sha256=model_sha256(workplace.module),
        versions=versions(),
        warnings=find_warnings(_setting(workplace, primary), events),
        network_scores=networks,
        score_by_client=primary.by_client,
        accuracy=primary.score if is_accuracy else None,
        accuracy_before=before if is_accuracy else None,
        accuracy_by_round=by_round if is_accuracy else None,
        accuracies=networks if is_accuracy else {},
        accuracy_by_client=primary.by_client if is_accuracy else None,
        not_evaluated=_not_evaluated(main, evaluations) or None,
        link_mbit=run.link_mbit,
        link_hours=None if run.link_mbit is None else sum(link) / SECONDS_PER_HOUR,
        privacy=_privacy(workplace, [client for event in rounds for client in event.participants]),
        flips_per_upload=_observed("flips", main),
        flips_kept_per_upload=_observed("flips_kept", main),
        false_flips_per_upload=_observed("false_flips", main),
    )


def _calibrates(local: Any) -> bool | None:
    """None: it cannot."""
    plain = all(getattr(getattr(local, key, None), "name", "none") == "none" for key in ("privacy", "regulariser"))
    found: bool | None = getattr(local, "calibrate", None)
    return found if plain else None


def _setting(workplace: Workplace, found: Evaluation) -> Setting:
    run, method, problem = workplace.settings.run, workplace.method("main"), workplace.problem
    # The method's own parameters: words such as `auto` are numbers there.
    rates = {key: getattr(method.parameters, key, None) for key in ("local", "server_rate")}
    rate = getattr(rates["local"], "learning_rate", None)
    calibrates = _calibrates(rates["local"])
    asked = calibrates is not None and problem.has_classes and not method.personal
    held = problem.split_summary().classes_per_client if asked else []
    return Setting(
        score_name=next(iter(found.scores)),
        higher_is_better=problem.objective.higher_is_better,
        after=found.score,
        tested=len(problem.test) if found.by_client is None else len(found.by_client),
        chance=1 / problem.classes if problem.has_classes else None,
        untrained_head=None if method.personal or run.head in HEADS else _untrained_head(workplace),
        head=run.head,
        learning_rate=rate if isinstance(rate, float) else None,
        server_rate=rates["server_rate"] if isinstance(rates["server_rate"], float) else None,
        nobody_counts=bool(calibrates and held) and max(held) < 2,
        few_classes=bool(not calibrates and held) and 2 * median(held) <= problem.classes,
    )


def _untrained_head(workplace: Workplace) -> str | None:
    try:
        head = find_head(workplace.module)
    except ModelError:
        return None
    trained = workplace.method("main").task.flat.template.names
    return None if any(name.startswith(f"{head}.") for name in trained) else head


def _counted(causes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(causes).items()))


def _not_evaluated(rounds: list[MainRound], evaluations: dict[str, Evaluation]) -> dict[str, int]:
    """Clients whose own network could not be evaluated; the mean is over the others."""
    last = [failure.cause for found in evaluations.values() for failure in found.failures.values()]
    return _counted(last + [failure.cause for event in rounds for failure in event.not_evaluated or ()])


def _privacy(workplace: Workplace, asked: list[int]) -> PrivacyReport | None:
    """`asked` contains every client once per turn."""
    method = workplace.method("main")
    if method.mechanism is None:
        return None
    turns = Counter(asked)
    examples = {client: workplace.problem.sizes[client] for client in turns}
    return privacy_report(method.mechanism, examples, turns)


def _observed(name: str, rounds: list[MainRound]) -> float | None:
    """The mean over the rounds that report it."""
    values = [event.observations[name] for event in rounds if name in event.observations]
    return sum(values) / len(values) if values else None


def versions() -> dict[str, str]:
    packages = ("subbit", "torch", "numpy", "numba", "transformers")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}
