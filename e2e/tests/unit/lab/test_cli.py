import pytest

from e2e.lab.cli import main, parser


def test_an_error_is_one_line_and_exit_code_1(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LAB_ROOT", str(tmp_path))
    assert main(["sh", "nowhere", "true"]) == 1
    assert capsys.readouterr().err == "lab: there is no zone 'nowhere'\n"


def test_options_of_a_program_on_a_node_are_the_programs():
    assert parser().parse_args(["sh", "a", "ls", "-l"]).command == ["ls", "-l"]


def test_without_a_command_it_says_how_it_is_used(capsys):
    with pytest.raises(SystemExit):
        main([])
    assert "usage: python -m e2e.lab" in capsys.readouterr().err
