"""A stand-in for Cloud Storage, and the environment in which child processes take it for the real one."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.parse
import urllib.request
import uuid

import pytest

SERVER = pathlib.Path(__file__).with_name("gcs_server.py")
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Storage:
    """An empty bucket on the stand-in.

    Attributes:
      url: address of the server.
      bucket: name of the bucket.
      env: environment for child processes.
    """

    def __init__(self, url, ca_file, key_file):
        self.url = url
        self.bucket = f"test-{uuid.uuid4().hex[:12]}"
        inherited = ("GCS_", "CLOUDSDK_", "BOTO_", "GOOGLE_", "STORAGE_EMULATOR")
        trusting = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "HTTPLIB2_CA_CERTS")
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(inherited)},
            **dict.fromkeys((*trusting, "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"), ca_file),
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), url),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
            "GOOGLE_APPLICATION_CREDENTIALS": key_file,
            "NO_GCE_CHECK": "true",
            # Tries three times without waiting, where the real settings wait for minutes.
            "GCS_RETRY_CONFIG_MAX_RETRIES": "3",
            "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": "0",
            "GCS_STAT_CACHE_MAX_AGE": "0",
            "GCS_REQUEST_IDLE_TIMEOUT_SECS": "10",
            "GCS_METADATA_REQUEST_TIMEOUT_SECS": "10",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._ask("/storage/v1/b?project=test", {"name": self.bucket})

    def fault(self, match, action, **more):
        """Makes requests fail; see `gcs_server.Fault`."""
        self._ask("/_sim/faults", {"match": match, "action": action, **more})

    def mend(self):
        """Ends all faults."""
        self._ask("/_sim/faults", method="DELETE")

    def log(self):
        """Pairs of each request and what became of it."""
        return self._ask("/_sim/log")

    def names(self):
        """Names of the objects in the bucket."""
        return [item["name"] for item in self._ask(f"/storage/v1/b/{self.bucket}/o")["items"]]

    def read(self, name):
        """Content of an object."""
        name = urllib.parse.quote(name, safe="")
        with _NO_PROXY.open(f"{self.url}/storage/v1/b/{self.bucket}/o/{name}?alt=media", timeout=10) as f:
            return f.read()

    def write(self, name, content):
        """Writes an object."""
        name = urllib.parse.quote(name, safe="")
        self._ask(f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={name}", content)

    def _ask(self, path, content=None, method=None):
        data = content if isinstance(content, (bytes, type(None))) else json.dumps(content).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with _NO_PROXY.open(request, timeout=10) as f:
            return json.loads(f.read() or b"null")


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory):
    """Address of the server, which is a process of its own; its CA's certificate; and a service account's key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    folder = tmp_path_factory.mktemp("gcs")
    process = subprocess.Popen([sys.executable, SERVER, "0", folder], stdout=subprocess.PIPE, text=True)
    url, ca_file = process.stdout.readline().split(maxsplit=1)
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
    yield url, ca_file.strip(), str(folder / "key.json")
    process.terminate()
    process.wait(10)


@pytest.fixture
def gcs(gcs_server):
    """A `Storage` of its own for each test, without faults."""
    storage = Storage(*gcs_server)
    yield storage
    storage.mend()
