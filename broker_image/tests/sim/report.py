"""What a person reads of a failure: its case, what each host did when, and the command that shows it again."""

from broker_image.tests.sim.shrinking import SHRINK_RUNS_MAX, Shrinker
from broker_image.tests.sim.simulation import Case, Outcome, drawn_case, run

LINES_MAX = 150


def timeline(case: Case) -> str:
    """The run of a case, a line for each thing that is worth telling, by time and host."""
    outcome = run(case, is_told=True)
    lines = [f"{at_ms:>7} ms  {host:<7} {text}" for at_ms, host, text in outcome.notes]
    if len(lines) > LINES_MAX:
        lines = [f"... {len(lines) - LINES_MAX} lines before", *lines[-LINES_MAX:]]
    return "\n".join([*lines, f"{outcome.failure or 'nothing failed'}"])


def report(case: Case, outcome: Outcome, runs: int = SHRINK_RUNS_MAX) -> str:
    """Of a case that failed: shrunk, and how to see it whole."""
    small = Shrinker(case, outcome, runs).shrink()
    command = f"SIM_SEED={case.seed} pytest -s broker_image/tests/sim/test_seeds.py"
    return "\n".join(
        [
            f"seed {case.seed}: {outcome.failure}",
            f"{small.settings}",
            f"{len(small.faults)} of {len(case.faults)} faults, {len(small.load)} of {len(case.load)} records:",
            *(f"    {fault}" for fault in small.faults),
            timeline(small),
            f"whole: {command}",
        ]
    )


def report_of(seed: int) -> str | None:
    """None if the seed passes."""
    case = drawn_case(seed)
    outcome = run(case)
    return None if outcome.failure is None else report(case, outcome)
