"""Stand-ins for Cloud Storage and for all of Google Cloud, and environments in which programs take them for real."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
import uuid

import google_apis
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


class Cloud(Storage):
    """All of Google Cloud, with nothing in it, and machines to log in to.

    Attributes:
      folder: of the machines; see `fake_vm`.
      env: environment for child processes.
      bucket: name of the bucket that `names`, `read` and `write` are about; it is not there yet.
    """

    def __init__(self, url, ca_file, folder):
        self.url, self.folder, self.bucket = url, folder, "my-bucket"
        home = folder / "home"
        home.mkdir(exist_ok=True)
        self.env = {
            **google_apis.environment(url, ca_file, os.environ),
            "HOME": str(home),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "CLOUDSDK_CONFIG": str(folder / "gcloud"),
            "CLOUDSDK_CORE_PROJECT": "my-project",
            "CLOUDSDK_COMPUTE_ZONE": "us-central1-b",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._ask("/_sim/reset", b"")

    def make_bucket(self, location="us-central1"):
        """Makes the bucket."""
        self._ask("/storage/v1/b?project=my-project", {"name": self.bucket, "location": location})

    def set(self, **settings):
        """Changes what `google_apis.Cloud` lists under "Settings"."""
        self._ask("/_sim/cloud", settings)

    def state(self):
        """All that exists, by kind and full name."""
        return self._ask("/_sim/cloud")

    def set_node(self, name, **fields):
        """Changes a node, such as its `state`; a state in which no machine runs kills it."""
        self._ask(f"/_sim/nodes/{name}", fields)

    def lose_node(self, name):
        """Makes a node vanish."""
        self._ask(f"/_sim/nodes/{name}", method="DELETE")

    def fail_operation(self, match, code, message, count=1):
        """Makes operations end in an error; `match` is searched for in "verb full-name"."""
        self._ask("/_sim/failures", {"match": match, "code": code, "message": message, "count": count})

    def drop_ssh(self, when):
        """Makes the next ssh connection fail: at the "start", at the "end", or after a number of seconds."""
        (self.folder / "drop").write_text(str(when))

    def home(self):
        """The home folder of the only machine."""
        (machine,) = (self.folder / "machines").iterdir()
        return machine / "home"


@pytest.fixture(scope="session")
def google_server(tmp_path_factory):
    """Address of the server, which is a process of its own; its CA's certificate; and the folder of its machines."""
    if not shutil.which("gcloud"):
        pytest.skip("needs gcloud: https://cloud.google.com/sdk/docs/install")
    folder = tmp_path_factory.mktemp("google")
    command = [sys.executable, SERVER.with_name("google_apis.py"), "0", folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url, ca_file = process.stdout.readline().split(maxsplit=1)
    yield url, ca_file.strip(), folder
    _NO_PROXY.open(urllib.request.Request(f"{url}/_sim/reset", b""), timeout=30).close()
    process.terminate()
    process.wait(10)


@pytest.fixture
def cloud(google_server):
    """A `Cloud` of its own for each test, without faults."""
    return Cloud(*google_server)
