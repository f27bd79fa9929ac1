import os
import signal
import subprocess
import sys

from logfleet.io.tether import tethered


def test_the_program_takes_the_place_of_the_tether() -> None:
    program = "import os, sys; print(os.getpid(), sys.argv[1:])"
    command = tethered([sys.executable, "-c", program, "a b", ""])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read() == f"{process.pid} ['a b', '']\n"


def test_a_dead_starter_means_no_program() -> None:
    command = tethered(["echo", "ran"])
    command[command.index(str(os.getpid()))] = "1"
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_program_that_is_not_there_is_named() -> None:
    done = subprocess.run(tethered(["no-such-program"]), capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == b"no-such-program: No such file or directory\n"


def test_the_kernel_kills_it_with_its_starter() -> None:
    starter = (
        "import subprocess, sys; from logfleet.io.tether import tethered\n"
        "child = subprocess.Popen(tethered([sys.executable, '-c', 'import time; print(1, "
        "flush=True); time.sleep(600)']))\n"
        "print(child.pid, flush=True); import signal; signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert {process.stdout.readline(), process.stdout.readline()} >= {"1\n"}
        process.send_signal(signal.SIGKILL)
        # The pipe's other end closes when the last of them is gone.
        assert process.stdout.read() == ""
