"""Judge the claims of a paper by what the journal has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gramian.evaluation.comparison import SIGNIFICANCE
from gramian.experiments.experiment import VERDICTS, Claim, Experiment, format_figure, format_p_value
from gramian.experiments.runner import Benchmark, Cell

FIGURE = re.compile(r"\{([^{}:]+): ([^{}]+), ([^{},]+)\}")  # {data: model, metric}, in the evidence of a claim
NOT_TESTED = VERDICTS[-1]


@dataclass(frozen=True)
class JudgedClaim:
    """What a paper says, one of `VERDICTS` or the data sets on which it holds, and the evidence with its figures."""

    says: str
    verdict: str
    evidence: str

    @property
    def headline(self) -> str:
        """The verdict as a sentence."""
        return f"{self.verdict[0].upper()}{self.verdict[1:]}."


def judge_claims(benchmark: Benchmark, table: Experiment) -> list[JudgedClaim]:
    """Return the claims of a table with their verdicts.

    A claim whose figures are not in the journal cannot be tested. Figures that the table's own search did not choose do not
    count.
    """
    cells = {(cell.data, cell.model): cell for cell in benchmark.cells_of(table) if cell.is_search_result}
    return [judge_claim(benchmark, table, claim, cells) for claim in table.claims]


def judge_claim(benchmark: Benchmark, table: Experiment, claim: Claim, cells: dict[tuple[str, str], Cell]) -> JudgedClaim:
    """Fill the figures into the evidence of a claim, or compare its two models on every data set."""
    if claim.pair is not None:
        return compare_pair(benchmark, table, claim, claim.pair, cells)
    missing: list[str] = []

    def fill_in(match: re.Match[str]) -> str:
        data, model, metric = match.groups()
        cell = cells.get((data, model))
        value = None if cell is None else cell.measured_figure(table.metrics.get(metric, metric))
        if value is None:
            missing.append(f"{model} on {data}")
        return format_figure(value, table.metrics.get(metric, metric))

    evidence = FIGURE.sub(fill_in, claim.evidence)
    if missing:
        return JudgedClaim(claim.says, NOT_TESTED, f"The journal has no {list_once(missing)} yet.")
    return JudgedClaim(claim.says, claim.verdict or NOT_TESTED, evidence)


def list_once(missing: list[str]) -> str:
    """Return a list of what is missing, each once."""
    return ", ".join(dict.fromkeys(missing))


def compare_pair(
    benchmark: Benchmark, table: Experiment, claim: Claim, pair: tuple[str, str], cells: dict[tuple[str, str], Cell]
) -> JudgedClaim:
    """Judge a claim that one model is better than another: on every data set, by a paired test over its users."""
    evidence, verdicts = [], {}
    for data in table.data:
        fits = [cells[data.name, model].fit if (data.name, model) in cells else None for model in pair]
        if fits[0] is None or fits[1] is None or any(table.choose not in fit["metrics"] for fit in fits if fit):
            continue
        first, second = (f"{fit['metrics'][table.choose]:.4f}" for fit in fits if fit)
        text = f"{data.name}: {table.choose} {first} against {second}"
        comparison = benchmark.compare(fits[0], fits[1], table.choose)
        if fits[0]["key"] == fits[1]["key"]:
            evidence.append(f"{text}, the same model")
            verdicts[data.name] = False
        elif comparison is None:
            evidence.append(f"{text}, without a paired test: the metrics of each user were not recorded")
        else:
            test = f"difference {comparison.difference:+.4f} ± {comparison.stderr:.4f}, p {format_p_value(comparison.p_value)}"
            evidence.append(f"{text} ({test})")
            verdicts[data.name] = comparison.difference > 0 and comparison.p_value < SIGNIFICANCE
    if not evidence:
        return JudgedClaim(claim.says, NOT_TESTED, f"The journal has no {pair[0]} and {pair[1]} on the same data set yet.")
    return JudgedClaim(claim.says, join_verdicts(verdicts), "; ".join(evidence) + ".")


def join_verdicts(verdicts: dict[str, bool]) -> str:
    """Return the verdict on a claim from whether it holds on each data set that was tested."""
    if not verdicts:
        return NOT_TESTED
    if len(set(verdicts.values())) == 1:
        return VERDICTS[0] if all(verdicts.values()) else VERDICTS[1]
    where, where_not = ([name for name, holds in verdicts.items() if holds is wanted] for wanted in (True, False))
    return f"holds on {', '.join(where)}, not on {', '.join(where_not)}"
