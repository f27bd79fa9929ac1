"""The page's session with `logfleet test-server`, typed as it stands."""

import os
import re
import sys
from pathlib import Path

from logfleet.node.tools.loopback_ports import LoopbackPorts

from e2e.harness.processes import Rig

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "testing.md"
WITHIN_S = 100.0
SESSION = re.compile(r"^```sh\nsource \S+\n(logfleet test-server.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_session_of_the_page_loses_an_answer_and_ends_all_it_began(
    rig: Rig, tmp_path: Path
) -> None:
    (session,) = SESSION.findall(PAGE.read_text())
    ports = LoopbackPorts()
    script = session.replace("9700", str(ports.reserve())) + "wait\n"
    path = f"PATH={Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = ["env", f"--chdir={tmp_path}", path, "bash", "-euo", "pipefail", "-c", script]
    program = rig.program("session", shell)
    program.launch()
    code = program.wait(WITHIN_S)
    ports.release()
    assert code == 0, program.tail()
    seen = program.log.read_text()
    assert '{"fault":1,"hits":1}\n{"fault":1,"hits":1}\n1\nnull\nnull\n' in seen
