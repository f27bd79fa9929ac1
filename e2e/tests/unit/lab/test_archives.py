import hashlib
import json
import tarfile

from e2e.lab.archives import Image, layer_of_file, layer_of_folder, write_archive


def test_an_archive_names_its_config_and_its_only_layer(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"binary")
    layer_of_file(tmp_path / "layer.tar", program, "/usr/local/bin/program")
    image = Image("lab.local/x:1", entrypoint=("/usr/local/bin/program",), environment=("A=b",))
    write_archive(tmp_path / "image.tar", image, tmp_path / "layer.tar")
    with tarfile.open(tmp_path / "image.tar") as archive:
        (manifest,) = json.loads(content(archive, "manifest.json"))
        assert manifest["RepoTags"] == ["lab.local/x:1"]
        config = content(archive, manifest["Config"])
        assert manifest["Config"] == hashlib.sha256(config).hexdigest() + ".json"
        layer = content(archive, *manifest["Layers"])
    settings = json.loads(config)
    assert settings["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    assert settings["config"]["Entrypoint"] == ["/usr/local/bin/program"]
    assert "A=b" in settings["config"]["Env"]


def test_the_same_program_gives_the_same_layer_whenever_it_was_built(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"binary")
        layer_of_file(tmp_path / f"{name}.tar", tmp_path / name, "/program")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_folder_becomes_the_root_without_what_belongs_to_the_machine(tmp_path):
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "cpuinfo").touch()
    (root / "bin").mkdir()
    (root / "bin" / "sh").write_text("#!")
    layer_of_folder(tmp_path / "layer.tar", root)
    with tarfile.open(tmp_path / "layer.tar") as layer:
        assert sorted(layer.getnames()) == [".", "./bin", "./bin/sh", "./proc"]


def content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file
    return file.read()
