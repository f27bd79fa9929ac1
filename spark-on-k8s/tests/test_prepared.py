"""PySpark as `make setup` leaves it."""

from pathlib import Path

import pyspark


def modules_of_a_worker(_row: object) -> list[tuple[str, str]]:
    """Name and bytecode file of each module of PySpark that a worker has imported."""
    import sys

    loaded = [(name, module) for name, module in sys.modules.items() if name.startswith("pyspark")]
    return [(name, str(getattr(module, "__cached__", None))) for name, module in loaded]


def test_workers_import_the_installed_package_from_bytecode(spark):
    found = spark.sparkContext.parallelize([0], 1).flatMap(modules_of_a_worker).collect()
    assert "pyspark.worker" in dict(found)
    package = Path(pyspark.__file__).parent
    for name, cached in found:
        assert Path(cached).is_relative_to(package), name
        assert Path(cached).exists(), name
