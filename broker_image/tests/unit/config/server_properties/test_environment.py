from logfleet.config.server_properties.environment import keys_in


def test_names_are_those_of_apache_kafkas_image():
    environment = {
        "KAFKA_LOG_DIRS": "/data",
        "KAFKA_NODE_ID": "1",
        "KAFKA_A__B___C_D": "x",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_VERSION": "4.4.0",
        "KAFKA_": "nothing",
        "PATH": "/bin",
        "MY_KAFKA_NODE_ID": "2",
    }
    assert keys_in(environment, "KAFKA_") == {
        "log.dirs": "/data",
        "node.id": "1",
        "a_b-c.d": "x",
    }


def test_any_prefix_will_do():
    assert keys_in({"KAFKA_CFG_NODE_ID": "1", "KAFKA_X": "2"}, "KAFKA_CFG_") == {"node.id": "1"}
