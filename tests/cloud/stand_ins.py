"""What a test, or a rehearsal, does with the stand-ins: the environments in which programs take them for real."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.parse
import urllib.request
import uuid

import google_apis

NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


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
        with NO_PROXY.open(f"{self.url}/storage/v1/b/{self.bucket}/o/{name}?alt=media", timeout=60) as f:
            return f.read()

    def write(self, name, content):
        """Writes an object."""
        name = urllib.parse.quote(name, safe="")
        self._ask(f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={name}", content)

    def _ask(self, path, content=None, method=None, host=None):
        data = content if isinstance(content, (bytes, type(None))) else json.dumps(content).encode()
        headers = {"Content-Type": "application/json", **({"Host": host} if host else {})}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with NO_PROXY.open(request, timeout=60) as f:
            return json.loads(f.read() or b"null")


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
        self.reset()

    def reset(self):
        """Forgets everything and kills all machines."""
        for drop in self.folder.glob("drop-*"):
            drop.unlink()
        self._ask("/_sim/reset", b"")

    def buckets(self):
        """Names of the buckets."""
        return [bucket["name"] for bucket in self._ask("/storage/v1/b?project=my-project")["items"]]

    def node(self, name):
        """A node as the API describes it, or None."""
        nodes = self.state()["nodes"]
        return next((node for full_name, node in nodes.items() if full_name.endswith(f"/nodes/{name}")), None)

    def make_bucket(self, location="us-central1", **more):
        """Makes the bucket."""
        self._ask("/storage/v1/b?project=my-project", {"name": self.bucket, "location": location, **more})

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

    def drop_ssh(self, when, command=""):
        """Makes an ssh connection fail.

        Args:
          when: at the "start", at the "end", or after a number of seconds.
          command: part of the command whose next connection fails.
        """
        (self.folder / f"drop-{uuid.uuid4().hex}").write_text(f"{when}\n{command}\n")

    def make_tpu(self, name="my-tpu", kind="v3-8"):
        """Makes a TPU VM that is ready at once."""
        self.set(create_seconds=0)
        node = {"acceleratorType": kind, "runtimeVersion": "tpu-vm-tf-2.15.1-se", "labels": {}}
        place = "/v2/projects/my-project/locations/us-central1-b/nodes"
        self._ask(f"{place}?nodeId={name}", node, host="tpu.googleapis.com")

    def home(self):
        """The home folder of the only machine."""
        (machine,) = (self.folder / "machines").iterdir()
        return machine / "home"


def start_server(name, folder):
    """Starts one of the servers of this folder as a process of its own.

    Args:
      name: `gcs_server` or `google_apis`.
      folder: for its files.

    Returns:
      The process, the server's address, and its CA's certificate.
    """
    command = [sys.executable, pathlib.Path(__file__).with_name(f"{name}.py"), "0", folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url, ca_file = process.stdout.readline().split(maxsplit=1)
    return process, url, ca_file.strip()
