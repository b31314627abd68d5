"""A stand-in for Google Cloud Storage on one loopback port, in memory, that can be told to fail.

    python tests/cloud/gcs_server.py PORT FOLDER       (port 0: any; prints its address and the CA's file)

Real clients (TensorFlow's C++ file system, google-cloud-storage, gsutil, gcloud) talk to it unchanged, by environment
variables only: it is the proxy of their HTTPS connections (CONNECT), whose TLS it ends with a certificate of a
throwaway CA. Hosts other than Google's are refused, so that nothing leaves the machine. Plain HTTP on the same port
serves the same API, and beside it:

    POST /_sim/faults   a fault (see `Fault`) as JSON      GET /_sim/log    what was asked and answered, as JSON
    DELETE /_sim/faults no more faults                     POST /_sim/reset forget everything

Semantics follow https://cloud.google.com/storage/docs/json_api and .../resumable-uploads: generations and their
preconditions, uploads that are cut off and resumed, ranges, listing with delimiter and pages, rewrite, compose,
batches. Left out: versioning, access control, decompression of gzip content.
"""

import base64
import collections
import contextlib
import dataclasses
import datetime
import hashlib
import http.server
import itertools
import json
import os
import re
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse

import google_crc32c
import trustme

BLOCK = 1 << 18  # an upload that is cut off keeps whole blocks of this many bytes
HOSTS = re.compile(r"([a-z0-9._-]+\.)*googleapis\.com|accounts\.google\.com")
WRITABLE = ("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType", "metadata")
REASONS = {400: "invalid", 401: "authError", 403: "forbidden", 404: "notFound", 409: "conflict", 412: "conditionNotMet"}


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status

    def reply(self):
        reason = REASONS.get(self.status, "backendError")
        error = {"code": self.status, "message": str(self), "errors": [{"message": str(self), "reason": reason}]}
        return Reply.of({"error": error}, self.status)


@dataclasses.dataclass
class Reply:
    """An HTTP answer."""

    status: int = 200
    body: bytes = b""
    headers: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, content, status=200):
        return cls(status, json.dumps(content).encode(), {"Content-Type": "application/json; charset=UTF-8"})


@dataclasses.dataclass
class Request:
    """An HTTP request; `chunks` yields its body once."""

    method: str
    host: str
    target: str
    headers: dict
    chunks: object
    base: str = ""

    def __post_init__(self):
        parts = urllib.parse.urlsplit(self.target)
        self.path = parts.path
        self.query = {k: v[-1] for k, v in urllib.parse.parse_qs(parts.query, keep_blank_values=True).items()}
        self._body = None

    @property
    def body(self):
        if self._body is None:
            self._body = b"".join(self.chunks)
        return self._body

    def json(self):
        try:
            return json.loads(self.body or b"{}")
        except ValueError:
            return json.loads(self.body.decode().replace("'", '"'))  # TensorFlow's compose, which GCS accepts


@dataclasses.dataclass
class Fault:
    """Something that goes wrong.

    Attributes:
      match: regular expression that is searched for in "METHOD host/path?query".
      action: "status" (answers `status`), "reset" (breaks the connection), "truncate" (sends `after` bytes of the
        answer, then breaks it), "cut_upload" (takes `after` bytes, keeps what GCS would, breaks the connection),
        "lose_reply" (does what is asked, and breaks the connection), or "delay" (waits `seconds`).
      count: how many requests fail; -1: all.
      skip: how many that match are let through first.
      every: only each so many-th of those that match fails.
      message: what the error says.
    """

    match: str
    action: str
    count: int = 1
    skip: int = 0
    every: int = 1
    status: int = 503
    after: int = 0
    seconds: float = 0.0
    message: str = "injected"
    seen: int = 0

    def hits(self, request):
        if self.count == 0 or not re.search(self.match, request):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.seen - self.skip) % self.every:
            return False
        self.count -= 1
        return True


@dataclasses.dataclass
class Upload:
    """A resumable upload."""

    bucket: str
    name: str
    meta: dict
    query: dict
    received: bytearray = dataclasses.field(default_factory=bytearray)
    done: dict = None
    lock: object = dataclasses.field(default_factory=threading.Lock)


class Store:
    """Buckets and their objects, by the rules of Cloud Storage."""

    def __init__(self):
        self.lock = threading.RLock()
        self.buckets = {}  # name to resource
        self.objects = collections.defaultdict(dict)  # bucket to name to (resource, content)
        self.uploads = {}
        self._generations = itertools.count(time.time_ns() // 1000)
        self._upload_ids = itertools.count(1)

    def bucket(self, name):
        if name not in self.buckets:
            raise ApiError(404, "The specified bucket does not exist.")
        return self.buckets[name]

    def make_bucket(self, resource):
        name = resource.get("name", "")
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", name):
            raise ApiError(400, f"Invalid bucket name: {name!r}")
        if name in self.buckets:
            raise ApiError(409, "Your previous request to create the named bucket succeeded and you already own it.")
        now = _now()
        fixed = {"kind": "storage#bucket", "id": name, "metageneration": "1", "timeCreated": now, "updated": now}
        fixed["location"] = resource.get("location", "US").upper()
        self.buckets[name] = {"storageClass": "STANDARD", **resource, **fixed}
        return self.buckets[name]

    def get(self, bucket, name, generation=None):
        self.bucket(bucket)
        found = self.objects[bucket].get(name)
        if found is None or generation not in (None, found[0]["generation"]):
            raise ApiError(404, f"No such object: {bucket}/{name}")
        return found

    def check(self, bucket, name, query, prefix="if", reading=False):
        """Checks the preconditions of a request."""
        resource = self.objects[bucket].get(name, [{"generation": "0", "metageneration": "0"}])[0]
        for what in ("Generation", "Metageneration"):
            value = resource[what.lower()]
            if query.get(f"{prefix}{what}Match", value) != value:
                raise ApiError(412, "At least one of the pre-conditions you specified did not hold.")
            if query.get(f"{prefix}{what}NotMatch") == value:
                raise ApiError(304 if reading else 412, "At least one of the pre-conditions did not hold.")

    def put(self, bucket, name, content, meta, query, base, components=None):
        content = bytes(content)
        if not name or len(name.encode()) > 1024 or "\n" in name or "\r" in name:
            raise ApiError(400, "Invalid object name")
        md5 = _base64(hashlib.md5(content).digest())
        crc32c = _base64(google_crc32c.Checksum(content).digest())
        if meta.get("md5Hash", md5) != md5 or meta.get("crc32c", crc32c) != crc32c:
            raise ApiError(400, "Provided checksum does not match the content.")
        with self.lock:
            self.bucket(bucket)
            self.check(bucket, name, query)
            generation, now = str(next(self._generations)), _now()
            place = f"storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}"
            resource = {
                "kind": "storage#object",
                "id": f"{bucket}/{name}/{generation}",
                "selfLink": f"{base}/{place}",
                "mediaLink": f"{base}/download/{place}?generation={generation}&alt=media",
                "name": name,
                "bucket": bucket,
                "generation": generation,
                "metageneration": "1",
                "size": str(len(content)),
                "crc32c": crc32c,
                "etag": _base64(generation.encode()),
                "timeCreated": now,
                "updated": now,
                "storageClass": "STANDARD",
                **({"componentCount": components} if components else {"md5Hash": md5}),
                **{key: value for key, value in meta.items() if key in WRITABLE and value is not None},
            }
            self.objects[bucket][name] = (resource, content)
            return dict(resource)

    def delete(self, bucket, name, query):
        with self.lock:
            self.get(bucket, name, query.get("generation"))
            self.check(bucket, name, query)
            del self.objects[bucket][name]

    def list(self, bucket, query):
        with self.lock:
            self.bucket(bucket)
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
            first, last = query.get("startOffset", ""), query.get("endOffset", chr(sys.maxunicode))
            glob = re.compile(_glob_to_regex(query["matchGlob"])) if query.get("matchGlob") else None
            found = {}  # sorting key to resource, or None for a common prefix
            for name, (resource, _) in self.objects[bucket].items():
                if not (name.startswith(prefix) and first <= name < last and (glob is None or glob.match(name))):
                    continue
                end = name.find(delimiter, len(prefix)) if delimiter else -1
                if end >= 0:
                    common = name[: end + len(delimiter)]
                    found[common, 0] = None
                    if not (query.get("includeTrailingDelimiter") == "true" and name == common):
                        continue
                found[name, 1] = dict(resource)
            keys = sorted(found)
            if query.get("pageToken"):
                after = base64.urlsafe_b64decode(query["pageToken"]).decode()
                keys = [key for key in keys if key[0] > after]
            end = min(int(query.get("maxResults") or 1000), 1000)
            while 0 < end < len(keys) and keys[end][0] == keys[end - 1][0]:
                end += 1
            page = {"kind": "storage#objects"}
            if end < len(keys):
                page["nextPageToken"] = base64.urlsafe_b64encode(keys[end - 1][0].encode()).decode()
            page["items"] = [found[key] for key in keys[:end] if key[1]]
            page["prefixes"] = [key[0] for key in keys[:end] if not key[1]]
            return page


class Api:
    """Requests to answers."""

    error = ApiError

    def __init__(self):
        self.store = Store()

    def answer(self, request):
        try:
            reply = self._route(request)
        except ApiError as e:
            reply = Reply(304) if e.status == 304 else e.reply()
        except (KeyError, IndexError, ValueError, TypeError) as e:
            reply = ApiError(400, f"not understood: {type(e).__name__}: {e}").reply()
        for _ in request.chunks:  # what nobody wanted must still be read from the connection
            pass
        return reply

    def _route(self, request):
        path = [urllib.parse.unquote(part) for part in request.path.strip("/").split("/")]
        if path[-1] == "token" and request.method == "POST":
            return Reply.of({"access_token": "fake", "expires_in": 3600, "token_type": "Bearer"})
        if "upload" in path[:2] and "b" in path:
            return self._upload(request, path[path.index("b") + 1])
        if path[:3] == ["batch", "storage", "v1"]:
            return self._batch(request)
        if path[:3] == ["download", "storage", "v1"]:
            request.query["alt"] = "media"
            path = path[1:]
        if path[:2] == ["storage", "v1"]:
            return self._json(request, path[2:])
        bucket, _, name = urllib.parse.unquote(request.path.lstrip("/")).partition("/")
        if request.method not in ("GET", "HEAD") or not name:
            raise ApiError(404, "Not Found")
        return self._media(request, *self.store.get(bucket, name, request.query.get("generation")))

    def _json(self, request, path):
        store, query, method = self.store, request.query, request.method
        with store.lock:
            if path == ["b"]:
                if method == "POST":
                    return Reply.of(store.make_bucket(request.json()))
                return Reply.of({"kind": "storage#buckets", "items": list(store.buckets.values())})
            if path[0] != "b":
                raise ApiError(404, "Not Found")
            bucket = store.bucket(path[1])
            if len(path) == 2:
                if method == "DELETE":
                    if store.objects[path[1]]:
                        raise ApiError(409, "The bucket you tried to delete is not empty.")
                    del store.buckets[path[1]]
                    return Reply(204)
                if method in ("PATCH", "PUT"):
                    bucket.update(request.json())
                return Reply.of(bucket)
            if path[2] == "storageLayout":
                return Reply.of({"kind": "storage#storageLayout", "bucket": path[1], "location": bucket["location"]})
            if path[2:] == ["iam", "testPermissions"]:
                return Reply.of({"kind": "storage#testIamPermissionsResponse", "permissions": [query["permissions"]]})
            if path[2] != "o":
                raise ApiError(404, "Not Found")
            if len(path) == 3:
                return Reply.of(store.list(path[1], query))
            return self._object(request, path[1], path[3], path[4:])

    def _object(self, request, bucket, name, rest):
        store, query = self.store, request.query
        if rest == ["compose"]:
            return self._compose(request, bucket, name)
        if rest[:1] in (["rewriteTo"], ["copyTo"]):
            resource, content = store.get(bucket, name, query.get("sourceGeneration"))
            store.check(bucket, name, query, prefix="ifSource")
            meta = {key: value for key, value in resource.items() if key in WRITABLE}
            copy = store.put(rest[2], rest[4], content, {**meta, **request.json()}, query, request.base)
            if rest[0] == "copyTo":
                return Reply.of(copy)
            size = copy["size"]
            about = {"kind": "storage#rewriteResponse", "totalBytesRewritten": size, "objectSize": size, "done": True}
            return Reply.of({**about, "resource": copy})
        if rest:
            raise ApiError(404, "Not Found")
        if request.method == "DELETE":
            store.delete(bucket, name, query)
            return Reply(204)
        resource, content = store.get(bucket, name, query.get("generation"))
        store.check(bucket, name, query, reading=request.method == "GET")
        if request.method in ("PATCH", "PUT"):
            resource.update({key: value for key, value in request.json().items() if key in WRITABLE})
            resource.update(metageneration=str(int(resource["metageneration"]) + 1), updated=_now())
        if query.get("alt") == "media":
            return self._media(request, resource, content)
        fields = query.get("fields", "")
        if fields and not set("(/*") & set(fields):
            resource = {key: resource[key] for key in fields.split(",") if key in resource}
        return Reply.of(resource)

    def _compose(self, request, bucket, name):
        asked = request.json()
        parts, components = [], 0
        for source in asked["sourceObjects"]:
            resource, content = self.store.get(bucket, source["name"], source.get("generation"))
            self.store.check(bucket, source["name"], source.get("objectPreconditions", {}))
            parts.append(content)
            components += resource.get("componentCount", 1)
        meta = {key: value for key, value in asked.get("destination", {}).items() if key in WRITABLE}
        return Reply.of(self.store.put(bucket, name, b"".join(parts), meta, request.query, request.base, components))

    def _media(self, request, resource, content):
        headers = {
            "Content-Type": resource.get("contentType", "application/octet-stream"),
            "ETag": f'"{resource["etag"]}"',
            "X-Goog-Generation": resource["generation"],
            "X-Goog-Metageneration": resource["metageneration"],
            "X-Goog-Stored-Content-Length": resource["size"],
            "X-Goog-Hash": f"crc32c={resource['crc32c']}",
        }
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
        if not wanted:
            return Reply(200, content, headers)
        size = len(content)
        first = int(wanted[1]) if wanted[1] else max(0, size - int(wanted[2]))
        last = min(int(wanted[2]), size - 1) if wanted[1] and wanted[2] else size - 1
        if first >= size:
            return Reply(416, b"", {"Content-Range": f"bytes */{size}"})
        return Reply(206, content[first : last + 1], {**headers, "Content-Range": f"bytes {first}-{last}/{size}"})

    def _upload(self, request, bucket):
        query, kind = request.query, request.query.get("uploadType")
        if "upload_id" in query:
            return self._resume(request)
        if kind == "media":
            meta, content = {"contentType": request.headers.get("Content-Type")}, request.body
        elif kind == "multipart":
            (_, meta), (headers, content) = _multipart(request.headers["Content-Type"], request.body)
            meta = {"contentType": headers.get("content-type"), **json.loads(meta)}
        elif kind == "resumable":
            meta = {"contentType": request.headers.get("X-Upload-Content-Type"), **request.json()}
            name = query.get("name") or meta["name"]
            with self.store.lock:
                self.store.bucket(bucket)
                self.store.check(bucket, name, query)
                upload_id = f"upload{next(self.store._upload_ids)}"
                self.store.uploads[upload_id] = Upload(bucket, name, meta, query)
            name = urllib.parse.quote(name, safe="")
            where = f"/upload/storage/v1/b/{bucket}/o?uploadType=resumable&name={name}&upload_id={upload_id}"
            return Reply(200, b"", {"Location": request.base + where})
        else:
            raise ApiError(400, "Invalid uploadType")
        return Reply.of(self.store.put(bucket, query.get("name") or meta["name"], content, meta, query, request.base))

    def _resume(self, request):
        """One request of a resumable upload: some bytes, or the question how many have arrived."""
        upload = self.store.uploads.get(request.query["upload_id"])
        if upload is None:
            raise ApiError(404, "Upload session not found")
        with upload.lock:
            if upload.done:
                return Reply.of(upload.done)
            stated = re.fullmatch(
                r"bytes (?:(?P<first>\d+)-\d+|\*)/(?P<total>\d+|\*)", request.headers.get("Content-Range", "")
            )
            received = upload.received
            if not stated or stated["first"]:
                first = int(stated["first"]) if stated else 0
                if first > len(received):
                    raise ApiError(503, "There is a gap in the upload")
                del received[first:]  # sent once more
                try:
                    for chunk in request.chunks:
                        received += chunk
                except ConnectionError:
                    del received[len(received) // BLOCK * BLOCK :]
                    raise
            total = stated["total"] if stated else str(len(received))
            if total != str(len(received)):
                del received[len(received) // BLOCK * BLOCK :]
                headers = {"Range": f"bytes=0-{len(received) - 1}"} if received else {}
                if "X-GUploader-No-308" in request.headers:
                    return Reply(200, b"", {**headers, "X-Http-Status-Code-Override": "308"})
                return Reply(308, b"", headers)
            upload.done = self.store.put(upload.bucket, upload.name, received, upload.meta, upload.query, request.base)
            upload.received = bytearray()
            return Reply.of(upload.done)

    def _batch(self, request):
        answers = []
        for headers, part in _multipart(request.headers["Content-Type"], request.body):
            head, _, body = part.replace(b"\r\n", b"\n").partition(b"\n\n")
            first, *lines = head.decode().splitlines()
            method, url = first.split()[:2]
            own = {key.strip().title(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
            parts = urllib.parse.urlsplit(url)
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            reply = self.answer(Request(method, request.host, target, own, iter([body.strip()])))
            own = "".join(f"{key}: {value}\r\n" for key, value in reply.headers.items())
            answers.append(
                f"--batch\r\nContent-Type: application/http\r\n"
                f"Content-ID: <response-{headers.get('content-id', '').strip('<>')}>\r\n\r\n"
                f"HTTP/1.1 {reply.status} X\r\n{own}Content-Length: {len(reply.body)}\r\n\r\n".encode()
                + reply.body
                + b"\r\n"
            )
        return Reply(200, b"".join(answers) + b"--batch--\r\n", {"Content-Type": "multipart/mixed; boundary=batch"})


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection, which may turn into TLS when it is a proxy's."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every small answer waits 40 ms for a delayed acknowledgement
    tls_host = None

    def log_message(self, *args):
        pass

    def do_CONNECT(self):
        host = self.path.rpartition(":")[0]
        if not HOSTS.fullmatch(host):
            self.close_connection = True
            self._send(Reply(502, b"only Google's hosts are served here\n"))
            return
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            self.connection.settimeout(30)  # for a client that never finishes the handshake
            self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
            self.connection.settimeout(None)
        except OSError:
            self.close_connection = True
            return
        self.tls_host, self.close_connection = host, False
        self.rfile, self.wfile = self.connection.makefile("rb", -1), self.connection.makefile("wb", 0)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, ssl.SSLError, TimeoutError):
            self.close_connection = True

    def finish(self):
        with contextlib.suppress(OSError):
            super().finish()
            self.connection.close()

    def _serve(self):
        if hasattr(socket, "TCP_QUICKACK"):  # urllib3 leaves Nagle's algorithm on behind a proxy
            with contextlib.suppress(OSError):
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        host = self.tls_host or self.headers.get("Host", "").partition(":")[0]
        base = f"https://{host}" if self.tls_host else f"http://{self.headers.get('Host', '')}"
        chunks = self._chunks()
        if not self.tls_host and self.path.startswith("/_sim/"):
            self._send(self._control(b"".join(chunks)))
            return
        text = f"{self.command} {host}{self.path}"
        fault = self.server.fault(text)
        action = fault.action if fault else None
        if action == "delay":
            time.sleep(fault.seconds)
        if action == "reset":
            self._break(text, action)
        if action == "cut_upload":
            chunks = self._cut(chunks, fault.after)
        if action == "status":
            for _ in chunks:
                pass
            reply = self.server.api.error(fault.status, fault.message).reply()
        else:
            try:
                reply = self.server.api.answer(Request(self.command, host, self.path, self.headers, chunks, base))
            except ConnectionError:
                self._break(text, action)
        if action == "lose_reply":
            self._break(text, action)
        if action == "truncate":
            self._send(reply, fault.after)
            self._break(text, action)
        self._send(reply)
        self.server.log.append((text, reply.status))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _serve

    def _chunks(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            chunk = self.rfile.read(min(left, BLOCK))
            if not chunk:
                raise ConnectionResetError("the client went away")
            left -= len(chunk)
            yield chunk

    def _cut(self, chunks, after):
        for chunk in chunks:
            yield chunk[:after]
            after -= len(chunk)
            if after <= 0:
                break
        raise ConnectionResetError("injected")

    def _send(self, reply, limit=None):
        self.send_response_only(reply.status, {308: "Resume Incomplete"}.get(reply.status))
        for key, value in reply.headers.items():
            self.send_header(key, value)
        has_body = reply.status not in (204, 304)
        if has_body:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if has_body and self.command != "HEAD":
            self.wfile.write(reply.body[:limit])

    def _break(self, text, action):
        """Ends the connection as a network does that fails."""
        self.server.log.append((text, action))
        connection = self.connection
        with contextlib.suppress(OSError):
            if isinstance(connection, ssl.SSLSocket):
                connection = socket.socket(fileno=connection.detach())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            self.request.close()
        raise ConnectionAbortedError

    def _control(self, body):
        server = self.server
        if self.path == "/_sim/faults" and self.command == "POST":
            server.faults.append(Fault(**json.loads(body)))
        elif self.path == "/_sim/faults":
            server.faults.clear()
        elif self.path == "/_sim/reset":
            server.api.store.__init__()
            server.faults.clear()
            server.log.clear()
        elif self.path == "/_sim/log":
            return Reply.of(server.log)
        else:
            return Reply(404)
        return Reply(204)


class Server(http.server.ThreadingHTTPServer):
    """The server: `url`, and `ca_file` with the certificate that clients must trust."""

    handler = Handler
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, port, folder, api=None):
        super().__init__(("127.0.0.1", port), self.handler)
        self.api, self.faults, self.log = api or Api(), [], []
        self._fault_lock = threading.Lock()
        authority = trustme.CA()
        certificate = authority.issue_cert("*.googleapis.com", "*.storage.googleapis.com", "accounts.google.com")
        self.ca_file = os.path.join(folder, "ca.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self.tls)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def fault(self, text):
        with self._fault_lock:
            return next((fault for fault in self.faults if fault.hits(text)), None)

    def handle_error(self, request, client_address):
        pass


def _multipart(content_type, body):
    """Yields headers (lower case) and content of each part. Clients quote the boundary with ", ' or not at all."""
    boundary = re.search(r"""boundary=("[^"]*"|'[^']*'|[^;\s]+)""", content_type)[1].strip("\"'")
    for part in re.split(rb"(?:^|\r?\n)--" + re.escape(boundary.encode()), body)[1:]:
        if part.startswith(b"--"):
            return
        head, content = re.match(rb"[^\n]*\n((?:[^\r\n]+\r?\n)*)\r?\n(.*)", part, re.DOTALL).groups()
        lines = (line.partition(":") for line in head.decode("latin-1").splitlines())
        yield {key.strip().lower(): value.strip() for key, _, value in lines}, content


def _glob_to_regex(glob):
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(special.get(part) or re.escape(part) for part in parts) + r"\Z"


def _base64(data):
    return base64.b64encode(data).decode()


def _now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


if __name__ == "__main__":
    server = Server(int(sys.argv[1]), sys.argv[2])
    print(server.url, server.ca_file, flush=True)
    server.serve_forever()
