"""The HTTP interface for tests in other languages, with a real broker behind it."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from logfleet.testing.control import ControlServer, WrongRequest, called
from logfleet.testing.prepared import close_shared


class Asking:
    """Sends requests to the interface. cluster: the path of the broker that all tests share."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cluster = ""

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["error"]


@pytest.fixture(scope="module")
def ask() -> Iterator[Asking]:
    server = ControlServer(0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    asking = Asking(server.url)
    started = asking("POST", "/clusters", {"topics": {"orders": 2}})
    asking.cluster = f"/clusters/{started['cluster']}"
    yield asking
    server.shutdown()
    thread.join()
    server.clusters.close()
    server.server_close()
    close_shared()


def test_a_broker_is_started_shown_and_ended(ask: Asking) -> None:
    made = ask("POST", "/clusters", {"config": {"message.max.bytes": "4096"}})
    (broker,) = made["brokers"]
    assert (broker["broker"], broker["running"], broker["paused"]) == (1, True, False)
    assert made["bootstrap"] == broker["bootstrap"]
    path = f"/clusters/{made['cluster']}"
    assert made in ask("GET", "/clusters")
    assert ask("POST", f"{path}/brokers/1/pause", {}) is None
    assert ask("GET", path)["brokers"][0]["paused"]
    assert ask("POST", f"{path}/brokers/1/kill", {}) is None
    assert not ask("GET", path)["brokers"][0]["running"]
    assert ask("DELETE", path) is None
    assert ask("GET", path) == (404, f"there is nothing at {path}")


def test_a_fault_is_armed_counted_and_removed(ask: Asking) -> None:
    armed = ask("POST", f"{ask.cluster}/faults", {"api": "Produce", "drop": True, "broker": 1})
    path = f"{ask.cluster}/faults/{armed['fault']}"
    assert armed in ask("GET", f"{ask.cluster}/faults")
    code, error = ask("GET", f"{path}?hits=1&timeout_s=0.1")
    assert (code, "hit 0 of 1 requests" in error) == (400, True)
    assert ask("GET", path)["hits"] == 0
    assert ask("DELETE", path) == {"fault": armed["fault"], "hits": 0}
    assert ask("DELETE", path)[0] == 404


def test_methods_take_their_arguments_as_fields(ask: Asking) -> None:
    assert ask("POST", f"{ask.cluster}/create_topic", {"topic": "more", "partitions": 2}) is None
    assert ask("POST", f"{ask.cluster}/end", {"topic": "more", "partition": 1}) == 0
    assert ask("POST", f"{ask.cluster}/records", {"topic": "more"}) == []
    assert ask("POST", f"{ask.cluster}/advance", {"hours": 1}) is None
    assert ask("POST", f"{ask.cluster}/set_disk", {"slow_s": 0}) is None
    events = ask("POST", f"{ask.cluster}/events", {"kind": ["registered"]})
    assert {each["kind"] for each in events} == {"registered"}
    assert ask("POST", f"{ask.cluster}/groups/g/committed", {"topic": "more"}) is None


@pytest.mark.parametrize(
    "path,body,code,error",
    [
        ("/faults", {"api": "Produc", "drop": True}, 400, "did you mean Produce"),
        ("/faults", {"api": "Produce", "dorp": True}, 400, "did you mean drop?"),
        ("/faults", {"drop": True}, 400, "missing a required argument: 'api'"),
        ("/faults", ["Produce"], 400, "the body of a request is a JSON object"),
        ("/end", {"topic": "nothing", "timeout_s": 0.5}, 400, "nothing"),
        ("/end", {"topic": 7, "timeout_s": 0.5}, 400, ""),
        ("/order", {"do": "stop"}, 404, "there is nothing at"),
        ("/brokers/2/kill", {}, 404, "there is nothing at"),
        ("/brokers/1/close", {}, 404, "there is nothing at"),
        ("/groups/g/rebalance", {}, 400, "group g"),
    ],
)
def test_a_wrong_request_is_answered_by_a_sentence(
    ask: Asking, path: str, body: object, code: int, error: str
) -> None:
    found_code, found = ask("POST", ask.cluster + path, body)
    assert (found_code, error in found) == (code, True), found


def test_a_body_that_is_no_json_is_refused(ask: Asking) -> None:
    request = urllib.request.Request(f"{ask.url}/clusters", b"{", method="POST")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=60)
    with raised.value as error:
        assert error.code == 400


@pytest.mark.parametrize("headers", [{"Origin": "http://page"}, {"Host": "page:80"}])
def test_pages_of_a_browser_are_not_served(ask: Asking, headers: dict[str, str]) -> None:
    answer = ask("GET", "/clusters", None, **headers)
    assert answer == (403, "only programs on this machine are served")


def test_the_number_of_brokers_is_limited(ask: Asking) -> None:
    assert ask("POST", "/clusters", {"brokers": 99}) == (400, "brokers is a number from 1 to 15")


def test_only_a_functions_own_arguments_are_passed() -> None:
    assert called(divmod_of, {"first": 7, "second": 2}) == (3, 1)
    with pytest.raises(WrongRequest, match=r"divmod_of has no argument 'frist': did you mean firs"):
        called(divmod_of, {"frist": 7, "second": 2})


def divmod_of(first: int, second: int) -> tuple[int, int]:
    return divmod(first, second)
