"""Object stores that refuse connections, or never answer: a timely error that names them."""

import asyncio
import socket

import numpy as np
import pytest

from shardwise import checkpoints
from shardwise._src.base.config import store_timeout_secs
from shardwise._src.saving import storage
from shardwise._src.saving.storage import Place
from tests.helpers.errors import fails

pytest.importorskip("tensorstore")
VARIABLES = {"s3": "AWS_ENDPOINT_URL", "gs": "TENSORSTORE_GCS_HTTP_URL"}


@pytest.fixture(params=["refuses", "is silent"])
def url(request, monkeypatch):
    """A port at which nothing listens, or one that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if request.param == "is silent":
            server.listen(50)
        found = f"http://127.0.0.1:{server.getsockname()[1]}"
        for name, value in {
            **dict.fromkeys(VARIABLES.values(), found), "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true",
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield found


@pytest.mark.parametrize("kind", VARIABLES)
def test_a_store_that_does_not_answer(url, kind, monkeypatch):
    at = f"{kind}://bucket/run"
    monkeypatch.setattr(storage, "_AT_A_TIME", 0)
    tree = {"w": np.ones(3)}
    message = (
        f"{at}: the store at {url} has not answered within 0.2 s. Check that this machine can "
        f"reach it, and that {VARIABLES[kind]}, if set, names the right endpoint; increase "
        "store_timeout_secs to allow more time."
    )
    with store_timeout_secs(0.2):
        fails(TimeoutError, message, checkpoints.save, at, tree)
        fails(TimeoutError, message, checkpoints.restore, at)
        fails(TimeoutError, message, checkpoints.describe, at)
        fails(TimeoutError, message, checkpoints.CheckpointManager, at)
        place = Place.at("", at)
        fails(TimeoutError, message, lambda: asyncio.run(place.download("w/c/0", 0)))
        fails(TimeoutError, message, lambda: asyncio.run(place.upload("w/c/0", b"")))
        saving = checkpoints.save_async(at, tree)
    fails(TimeoutError, message, saving.wait)


def test_large_objects_have_more_time():
    place = Place.at("", "memory://run")
    assert place._seconds(0) == 30.0 and place._seconds(1 << 25) == 62.0
