"""The API client against a server that speaks HTTP as the API server does."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from logfleet_operator import kube as kube_module
from logfleet_operator.credentials import Connection
from logfleet_operator.kube import ApiServer, KubeConflict, KubeError, KubeUnavailable

pytestmark = pytest.mark.asyncio


class FakeServer:
    """Answers every request with `status` and `body`, and keeps the last request."""

    def __init__(self) -> None:
        self.status = 200
        self.body: Any = {}
        self.method = ""
        self.path = ""
        self.query: dict[str, str] = {}
        self.content_type = ""
        self.sent: Any = None
        self.token = "first"
        self.authorization = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.method, self.path = request.method, request.path
        self.query = dict(request.query)
        self.content_type = request.content_type
        self.authorization = request.headers["Authorization"]
        text = await request.text()
        self.sent = json.loads(text) if text else None
        return web.json_response(self.body, status=self.status)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[tuple[FakeServer, ApiServer]]:
    fake = FakeServer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    kube = ApiServer(lambda: Connection(server=f"http://{host}:{port}", token=fake.token))
    yield fake, kube
    await kube.close()
    await runner.cleanup()


Server = tuple[FakeServer, ApiServer]


async def test_reading_one(server: Server) -> None:
    fake, kube = server
    fake.body = {"kind": "Service"}
    assert await kube.get("Service", "air", "fleet") == {"kind": "Service"}
    assert (fake.method, fake.path) == ("GET", "/api/v1/namespaces/air/services/fleet")
    await kube.get("CustomResourceDefinition", "", "topics.logfleet.dev")
    assert fake.path == (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/topics.logfleet.dev"
    )
    fake.status = 404
    assert await kube.get("Service", "air", "fleet") is None


async def test_making_what_nobody_has_made(server: Server) -> None:
    fake, kube = server
    fake.status = 201
    manifest = {"kind": "Secret", "metadata": {"namespace": "air", "name": "fleet-etcd-ca"}}
    await kube.create(manifest)
    assert (fake.method, fake.path) == ("POST", "/api/v1/namespaces/air/secrets")
    assert fake.query == {"fieldManager": "logfleet-operator"}
    assert fake.sent == manifest
    fake.status, fake.body = 409, {"reason": "AlreadyExists"}
    with pytest.raises(KubeConflict):
        await kube.create(manifest)


async def test_reading_all_by_label(server: Server) -> None:
    fake, kube = server
    fake.body = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}]}
    found = await kube.list("Pod", "air", {"a": "b", "c": "d"})
    assert found == [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}]
    assert fake.path == "/api/v1/namespaces/air/pods"
    assert fake.query == {"labelSelector": "a=b,c=d"}
    await kube.list("Topic", "")
    assert fake.path == "/apis/logfleet.dev/v1beta1/topics"
    assert fake.query == {}


async def test_applying_an_object_and_a_status(server: Server) -> None:
    fake, kube = server
    manifest = {"kind": "Topic", "metadata": {"name": "a", "namespace": "air"}, "status": {}}
    await kube.apply(manifest)
    assert (fake.method, fake.path) == (
        "PATCH",
        "/apis/logfleet.dev/v1beta1/namespaces/air/topics/a",
    )
    assert fake.query == {"fieldManager": "logfleet-operator", "force": "true"}
    assert fake.content_type == "application/apply-patch+yaml"
    assert fake.sent == manifest
    await kube.apply_status(manifest)
    assert fake.path.endswith("/topics/a/status")


async def test_deleting_and_evicting_a_pod_name_it_by_its_uid(server: Server) -> None:
    fake, kube = server
    await kube.delete("Pod", "air", "a", "u1")
    assert fake.method == "DELETE"
    assert fake.sent["preconditions"] == {"uid": "u1"}
    assert await kube.evict_pod("air", "a", "u1")
    assert fake.path == "/api/v1/namespaces/air/pods/a/eviction"
    assert fake.sent["deleteOptions"] == {"preconditions": {"uid": "u1"}}
    fake.status = 429
    assert not await kube.evict_pod("air", "a", "u1")
    for gone in (404, 409):
        fake.status = gone
        assert await kube.evict_pod("air", "a", "u1")
        await kube.delete("Pod", "air", "a", "u1")


async def test_a_failure_under_a_code_of_success_is_an_error(server: Server) -> None:
    fake, kube = server
    fake.status = 201
    fake.body = {"kind": "Status", "status": "Success"}
    assert await kube.evict_pod("air", "a", "u1")
    # As Kubernetes's eviction.go answers when a second budget covers the pod.
    message = "This pod has more than one PodDisruptionBudget"
    fake.body = {"kind": "Status", "status": "Failure", "message": message, "code": 500}
    with pytest.raises(KubeError, match=message) as caught:
        await kube.evict_pod("air", "a", "u1")
    assert caught.value.status == 500
    assert "pods/a/eviction" in str(caught.value)


@pytest.mark.parametrize(
    "status, error",
    [
        (403, KubeError),
        (422, KubeError),
        (409, KubeConflict),
        (429, KubeUnavailable),
        (503, KubeUnavailable),
    ],
)
async def test_an_answer_that_is_no_success_is_an_error(
    server: Server, status: int, error: type[Exception]
) -> None:
    fake, kube = server
    fake.status, fake.body = status, {"reason": "Because", "message": "so it is"}
    calls: list[Callable[[], Any]] = [
        lambda: kube.get("Pod", "air", "a"),
        lambda: kube.apply({"kind": "Pod", "metadata": {"name": "a", "namespace": "air"}}),
    ]
    for call in calls:
        with pytest.raises(error, match="so it is") as caught:
            await call()
        assert type(caught.value) is error


async def test_no_answer_is_no_verdict() -> None:
    kube = ApiServer(lambda: Connection(server="http://127.0.0.1:1"))
    with pytest.raises(KubeUnavailable):
        await kube.get("Pod", "air", "a")
    await kube.close()


async def test_a_token_that_was_replaced_is_read_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, kube = server
    fake.token = "second"
    await kube.get("Pod", "air", "a")
    assert fake.authorization == "Bearer first"
    monkeypatch.setattr(kube_module, "TOKEN_READ_S", 0.0)
    await kube.get("Pod", "air", "a")
    assert fake.authorization == "Bearer second"
