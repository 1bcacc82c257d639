"""`accelhub devices` beside `accelerate env`: whole processes, one run, best of five and of two. Prints the ratio."""

import subprocess
import sys
import time
from pathlib import Path


def best(command, times):
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


here = Path(sys.executable).parent
ours = best([here / "accelhub", "devices", "--json"], 5)
theirs = best([here / "accelerate", "env"], 2)
print(f"accelhub devices {ours:.2f} s   accelerate env {theirs:.2f} s   ratio {theirs / ours:.0f}x")
