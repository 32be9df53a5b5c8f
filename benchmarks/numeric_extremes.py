"""Many random fits at numeric extremes, for every registered model: counts of finite and of refused ones, and every failure.

    python benchmarks/numeric_extremes.py --cases 1000 [--model EASE] [--first 0]

The cases are those of tests/contracts/test_numeric_extremes.py, which runs the first few. Exits with 1 if a case failed.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import gramian as gr

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from contracts.extremes import run_case  # type: ignore[import-not-found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000, help="cases of each model")
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--model", action="append", help="a model; all if left out")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for name in options.model or list(gr.MODELS):
        outcomes: Counter[str] = Counter()
        for seed in range(options.first, options.first + options.cases):
            try:
                outcomes[run_case(gr.MODELS.find(name), seed)] += 1
            except AssertionError as error:
                outcomes["failed"] += 1
                print(error)
        print(f"{name:16} " + ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())))
        total += outcomes
    print(f"{'all':16} " + ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(total.items())))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
