"""How benchmark programs tell `benchmarks/all.py` what they found."""

import json
import os

# Names the file that ratios are appended to, a JSON object a line; without it they are only printed.
FILE = "BENCHMARK_RESULTS"


def add(benchmark, what, ratio, beside):
    """Tells of a ratio, of which more is better and which depends little on the machine.

    Args:
      benchmark: what is measured.
      what: the case.
      ratio: how many times as fast it is.
      beside: what it is compared with, measured in the same run.
    """
    if FILE in os.environ:
        with open(os.environ[FILE], "a", encoding="utf-8") as f:
            row = {"benchmark": benchmark, "what": what, "ratio": round(ratio, 3), "beside": beside}
            f.write(json.dumps(row) + "\n")
