from e2e.lab.indexes import CA_IN_BUILD, build_secrets, pip_conf

LISTED = """\
:env:.find-links='/opt/wheels'
global.cert='/etc/ssl/certs/ca-certificates.crt'
global.extra-index-url='https://one.test/simple\\nhttps://two.test/simple'
global.index-url='https://me:secret@index.test/simple'
"""


def test_where_to_fetch_is_passed_on_and_folders_of_this_machine_are_not():
    conf = pip_conf(LISTED)
    assert "index-url = https://me:secret@index.test/simple\n" in conf
    assert "    https://two.test/simple\n" in conf
    assert "/opt/wheels" not in conf


def test_a_build_trusts_what_it_is_given():
    assert f"cert = {CA_IN_BUILD}\n" in pip_conf("")


def test_the_secret_is_readable_by_its_owner_only(tmp_path):
    secrets = build_secrets(tmp_path / "new")
    assert secrets["pip"].stat().st_mode & 0o077 == 0
    assert set(secrets) == {"pip", "ca"}
