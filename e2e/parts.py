"""`make test`: runs the parts one after another, prints minutes per part, fails if one failed."""

import os
import subprocess
import sys
import time


def main(parts: list[str]) -> int:
    """Run `make PART` for each part; later parts run even if an earlier one failed."""
    rows: list[tuple[str, float, int]] = []
    for part in parts:
        print(f"\n=== {part}", flush=True)
        started = time.monotonic()
        code = subprocess.run(["make", "--no-print-directory", part], check=False).returncode
        rows.append((part, (time.monotonic() - started) / 60, code))
    print(f"\npart            minutes  result   (load average {os.getloadavg()[0]:.1f})")
    for part, minutes, code in rows:
        print(f"{part:<15} {minutes:>7.1f}  {'ok' if code == 0 else f'FAILED ({code})'}")
    print(f"{'all':<15} {sum(minutes for _, minutes, _ in rows):>7.1f}")
    return max(code for _, _, code in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
