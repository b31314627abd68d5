"""Stand-ins for Cloud Storage and for all of Google Cloud."""

import json
import shutil
import urllib.request

import pytest
from stand_ins import NO_PROXY, Cloud, Storage, start_server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory):
    """Address of the server, which is a process of its own; its CA's certificate; and a service account's key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    folder = tmp_path_factory.mktemp("gcs")
    process, url, ca_file = start_server("gcs_server", folder)
    private = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key = {
        "type": "service_account",
        "project_id": "test",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": "test@test.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    (folder / "key.json").write_text(json.dumps(key))
    yield url, ca_file, str(folder / "key.json")
    process.terminate()
    process.wait(10)


@pytest.fixture
def gcs(gcs_server):
    """A `Storage` of its own for each test, without faults."""
    storage = Storage(*gcs_server)
    yield storage
    storage.mend()


@pytest.fixture(scope="session")
def google_server(tmp_path_factory):
    """Address of the server, which is a process of its own; its CA's certificate; and the folder of its machines."""
    if not shutil.which("gcloud"):
        pytest.skip("needs gcloud: https://cloud.google.com/sdk/docs/install")
    folder = tmp_path_factory.mktemp("google")
    process, url, ca_file = start_server("google_apis", folder)
    yield url, ca_file, folder
    NO_PROXY.open(urllib.request.Request(f"{url}/_sim/reset", b""), timeout=30).close()
    process.terminate()
    process.wait(10)


@pytest.fixture
def cloud(google_server):
    """A `Cloud` of its own for each test, without faults."""
    return Cloud(*google_server)
