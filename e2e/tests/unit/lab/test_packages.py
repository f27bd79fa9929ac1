from e2e.lab.packages import missing

STATUS = """\
libc6-dev:amd64 ii\x20
containerd rc\x20
runc ii\x20
"""


def test_removed_packages_and_unknown_ones_are_missing():
    assert missing(("containerd", "runc", "libc6-dev", "gcc"), STATUS) == ["containerd", "gcc"]
