"""The stand-in keeps to the rules of Cloud Storage that failures make visible."""

import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import threading
import urllib.parse

import pytest

BLOCK = 1 << 18


@pytest.fixture
def ask(gcs):
    """Sends a request to the server and returns status, headers and body."""

    def ask(method, path, body=None, **headers):
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(gcs.url).netloc, timeout=10)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    return ask


@pytest.fixture
def upload(gcs, ask):
    def upload(name, content, query=""):
        path = f"/upload/storage/v1/b/{gcs.bucket}/o?uploadType=media&name={urllib.parse.quote(name, safe='')}{query}"
        status, _, body = ask("POST", path, content)
        return status, json.loads(body)

    return upload


def test_only_one_of_several_creates_an_object(upload):
    statuses = []
    threads = [
        threading.Thread(target=lambda: statuses.append(upload("lock", b"x", "&ifGenerationMatch=0")[0]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + 7 * [412]


def test_preconditions(gcs, ask, upload):
    first = upload("a/b", b"1")[1]["generation"]
    second = upload("a/b", b"2", f"&ifGenerationMatch={first}")[1]["generation"]
    assert int(second) > int(first)
    assert upload("a/b", b"3", f"&ifGenerationMatch={first}")[0] == 412
    path = f"/storage/v1/b/{gcs.bucket}/o/a%2Fb"
    assert ask("GET", f"{path}?ifGenerationNotMatch={second}")[0] == 304
    assert ask("DELETE", f"{path}?ifGenerationMatch={first}")[0] == 412
    assert ask("DELETE", f"{path}?ifGenerationMatch={second}")[0] == 204
    assert ask("GET", path)[0] == 404


def test_ranges_and_pages(gcs, ask, upload):
    for name in ("d/a", "d/b", "d/c/1", "d/c/2", "e"):
        upload(name, b"0123456789")
    assert ask("GET", f"/{gcs.bucket}/d/a", Range="bytes=2-4")[2] == b"234"
    assert ask("GET", f"/{gcs.bucket}/d/a", Range="bytes=-3")[2] == b"789"
    assert ask("GET", f"/{gcs.bucket}/d/a", Range="bytes=10-")[0] == 416
    found, token = [], ""
    while token is not None:
        page = json.loads(
            ask("GET", f"/storage/v1/b/{gcs.bucket}/o?prefix=d/&delimiter=/&maxResults=1&pageToken={token}")[2]
        )
        found += [item["name"] for item in page["items"]] + page["prefixes"]
        token = page.get("nextPageToken")
    assert found == ["d/a", "d/b", "d/c/"]


def test_an_upload_that_is_cut_off_keeps_whole_blocks_and_is_resumed(gcs, ask):
    content = os.urandom(2 * BLOCK + 100)
    start = f"/upload/storage/v1/b/{gcs.bucket}/o?uploadType=resumable&name=big"
    where = urllib.parse.urlsplit(ask("POST", start)[1]["Location"])
    where = f"{where.path}?{where.query}"
    gcs.fault("PUT .*upload_id", "cut_upload", after=BLOCK + 50)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask("PUT", where, content, Content_Range=f"bytes 0-{len(content) - 1}/{len(content)}")
    status, headers, _ = ask("PUT", where, b"", Content_Range=f"bytes */{len(content)}")
    assert (status, headers["Range"]) == (308, f"bytes=0-{BLOCK - 1}")
    assert "big" not in gcs.names()
    rest = f"bytes {BLOCK}-{len(content) - 1}/{len(content)}"
    assert ask("PUT", where, content[BLOCK:], Content_Range=rest)[0] == 200
    assert gcs.read("big") == content


def test_tensorflow_and_the_client_library_take_it_for_the_real_one(gcs):
    gcs.fault("PUT .*upload_id", "cut_upload", after=600_000)
    gcs.fault("GET storage.googleapis.com", "truncate", after=100_000)
    program = f"""
import os
import pathlib
import tensorflow as tf
from google.cloud import storage
content = os.urandom(1 << 20)
path = "gs://{gcs.bucket}/folder/file"
with tf.io.gfile.GFile(path, "wb") as f:
    f.write(content)
assert tf.io.gfile.GFile(path, "rb").read() == content
assert tf.io.gfile.listdir("gs://{gcs.bucket}/folder") == ["file"]
bucket = storage.Client().bucket("{gcs.bucket}")
assert bucket.blob("folder/file").download_as_bytes() == content
tf.io.gfile.rename(path, path + "2")
assert [blob.name for blob in bucket.list_blobs()] == ["folder/file2"]
"""
    result = subprocess.run([sys.executable, "-c", program], env=gcs.env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    outcomes = [outcome for _, outcome in gcs.log()]
    assert {"cut_upload", "truncate"} <= set(outcomes)
    assert all("googleapis.com" in request or request.split()[1].startswith("127.0.0.1") for request, _ in gcs.log())


def test_gsutil_takes_it_for_the_real_one(gcs, tmp_path):
    host, port = urllib.parse.urlsplit(gcs.url).netloc.split(":")
    boto = {
        "Credentials": {"gs_service_key_file": gcs.env["GOOGLE_APPLICATION_CREDENTIALS"]},
        "Boto": {"proxy": host, "proxy_port": port, "ca_certificates_file": gcs.env["CURL_CA_BUNDLE"]},
        "GSUtil": {"state_dir": tmp_path, "default_project_id": "test", "software_update_check_period": 0},
        "OAuth2": {"token_cache": "in_memory"},
    }
    lines = [line for name, keys in boto.items() for line in (f"[{name}]", *(f"{k} = {v}" for k, v in keys.items()))]
    (tmp_path / "boto").write_text("\n".join(lines))
    env = {**gcs.env, "BOTO_CONFIG": str(tmp_path / "boto")}
    tool = pathlib.Path(sys.executable).with_name("gsutil")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_bytes(os.urandom(BLOCK + 1))
    gcs.fault("POST .*upload", "status", status=503)

    def gsutil(*arguments):
        result = subprocess.run([tool, "-q", *arguments], env=env, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        return result

    there = f"gs://{gcs.bucket}"
    gsutil("cp", "-r", tmp_path / "folder", there)
    assert gcs.names() == ["folder/inner/file"]
    assert gsutil("ls", f"{there}/folder/inner").stdout == f"{there}/folder/inner/file\n"
    (tmp_path / "back").mkdir()
    gsutil("rsync", "-r", there, tmp_path / "back")
    copied = tmp_path / "back" / "folder" / "inner" / "file"
    assert copied.read_bytes() == (tmp_path / "folder" / "inner" / "file").read_bytes()
    gsutil("rm", "-r", f"{there}/folder")
    assert gcs.names() == []
