"""A stand-in for the Google Cloud APIs that the cloud verbs use, on the port of the stand-in for Cloud Storage.

    python tests/cloud/google_apis.py PORT FOLDER      (port 0: any; prints its address and the CA's file)

The real gcloud talks to it unchanged, by environment variables only (see `environment`): all of Google's hosts are
reached through its proxy, and nothing leaves the machine. It knows the Cloud TPU API v2 (nodes, queued resources,
operations), Compute Engine (instances, metadata), Service Usage, Resource Manager, Vertex AI custom jobs, Cloud
Logging, Cloud Build and Artifact Registry as far as the verbs need them. Names follow
https://cloud.google.com/tpu/docs/reference/rest and https://cloud.google.com/compute/docs/reference/rest. Machines are
made by `fake_vm`.

Beside `/_sim/faults`, `/_sim/log` and `/_sim/reset` of `gcs_server` there are, over plain HTTP:

    GET  /_sim/cloud                all that exists, as JSON
    POST /_sim/cloud                sets what `Cloud` lists under "Settings", such as {"create_seconds": 5}
    POST /_sim/nodes/NAME           sets fields of a node, such as {"state": "PREEMPTED"}, which kills its machine
    DELETE /_sim/nodes/NAME         the node is gone, without anybody having asked
    POST /_sim/failures             the next operations that match end in an error: {"match": "create .*my-tpu",
                                    "code": 8, "message": "There is no more capacity in the zone", "count": 1}
"""

import copy
import datetime
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
import urllib.parse

import fake_vm
import gcs_server
from gcs_server import Reply

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
ZONES = {
    "us-central1-a": ("v2-32", "v3-8"),
    "us-central1-b": ("v2-8", "v3-8"),
    "us-central1-c": ("v2-8",),
    "us-central1-f": ("v2-8",),
    "us-central2-b": ("v4-8", "v4-16", "v4-32"),
    "europe-west4-a": ("v2-8", "v3-8", "v3-32"),
}
VERSIONS = [
    f"tpu-vm-tf-{version}{kind}"
    for version in ("2.15.0", "2.15.1")
    for kind in ("-se", "-pod-se", "-pjrt", "-pod-pjrt")
]
# States of a node in which its machine runs.
RUNNING = ("READY", "REPAIRING", "RESTARTING", "REIMAGING")


class ApiError(gcs_server.ApiError):
    """An answer that is an error, in the form of the APIs other than Cloud Storage."""

    def reply(self):
        error = {"code": self.status, "message": str(self), "status": STATUSES.get(self.status, "UNKNOWN")}
        reason = gcs_server.REASONS.get(self.status, "backendError")
        return Reply.of({"error": {**error, "errors": [{"message": str(self), "reason": reason}]}}, self.status)


class Cloud:
    """All that exists, but for what is in Cloud Storage."""

    def __init__(self):
        # Settings.
        self.create_seconds = 0.5  # from asking for a node or an instance to its being ready
        self.delete_seconds = 0.2
        self.services = ["compute.googleapis.com", "storage.googleapis.com", "tpu.googleapis.com"]
        self.project_permissions = None  # those that the caller has; None: all
        self.job_states = ["JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]  # one for each look
        self.job_error = None  # of jobs that have ended, such as {"code": 9, "message": "..."}
        self.build_status = "SUCCESS"
        # What exists, by full name.
        self.nodes, self.queued, self.instances, self.jobs, self.operations = {}, {}, {}, {}, {}
        self.builds, self.repositories = {}, {}  # the latter with the tags of their images
        self.project_metadata, self.failures = [], []

    def view(self):
        """All of it, as JSON can hold it."""
        return {name: value for name, value in vars(self).items() if name != "operations"}


class GoogleApis(gcs_server.Api):
    """Requests to answers.

    Attributes:
      machines: `fake_vm.Machines`, which run while their node or instance does.
    """

    error = ApiError

    def __init__(self, machines):
        super().__init__()
        self.cloud, self.machines, self.lock = Cloud(), machines, threading.RLock()
        # Never those of a server before, whose machines may be known to ssh.
        self._ids, self._compute_operations = itertools.count(int(time.time())), {}
        self._services = {
            "tpu": self._tpu,
            "compute": self._compute,
            "serviceusage": self._serviceusage,
            "cloudresourcemanager": self._resourcemanager,
            "iam": self._iam,
            "aiplatform": self._aiplatform,
            "logging": self._logging,
            "cloudbuild": self._cloudbuild,
            "artifactregistry": self._artifactregistry,
        }

    def reset(self):
        """Forgets everything and stops all machines."""
        with self.lock:
            self.machines.kill_all()
            self.cloud = Cloud()
            self.store.__init__()

    def control(self, method, path, body):
        """Answers the requests that steer this stand-in, or returns None."""
        parts = path.strip("/").split("/")[1:]
        with self.lock:
            self._settle()
            if parts == ["cloud"] and method == "POST":
                unknown = set(body) - set(vars(Cloud()))
                if unknown:
                    return ApiError(400, f"no such setting: {sorted(unknown)}").reply()
                vars(self.cloud).update(body)
                return Reply(204)
            if parts == ["cloud"]:
                return Reply.of(self.cloud.view())
            if parts == ["failures"]:
                self.cloud.failures.append({"count": 1, **body})
                return Reply(204)
            if parts[0] == "nodes":
                name = next((name for name in self.cloud.nodes if name.endswith(f"/nodes/{parts[1]}")), None)
                if name is None:
                    return Reply(404)
                if method == "DELETE":
                    self._remove_node(name)
                else:
                    self.cloud.nodes[name].update(body)
                    if self.cloud.nodes[name]["state"] not in RUNNING:
                        self.machines.kill(self.cloud.nodes[name]["id"])
                return Reply(204)
        return None

    def _route(self, request):
        service = re.fullmatch(r"(?:[a-z0-9-]+-)?([a-z]+)\.(?:mtls\.)?googleapis\.com", request.host)
        handler = self._services.get(service[1]) if service else None
        if request.path == "/" or request.path.startswith("/computeMetadata/"):
            return _metadata(request)
        if handler is None:
            return self._storage(request)
        if "/batch" in request.path or request.path.endswith("/batch"):
            return self._batch(request)
        path = [urllib.parse.unquote(part) for part in request.path.strip("/").split("/")]
        with self.lock:
            self._settle()
            return Reply.of(handler(request, path))

    def _storage(self, request):
        path = request.path.strip("/").split("/")
        if path[:3] == ["storage", "v1", "b"] and path[4:] == ["iam"]:
            bucket = self.store.bucket(path[3])
            if request.method == "PUT":
                bucket["_policy"] = request.json()
            return Reply.of({"kind": "storage#policy", "etag": "CAE=", "bindings": [], **bucket.get("_policy", {})})
        return super()._route(request)

    # Operations. Something that takes time is begun at once and ends in `finish`, when its time has come.

    def _settle(self):
        for operation in self.cloud.operations.values():
            if not operation["done"] and time.monotonic() >= operation["due"]:
                operation["done"] = True
                if operation["error"] is None:
                    operation["result"] = operation["finish"]()
                elif operation["undo"]:
                    operation["undo"]()

    def _begin(self, parent, verb, target, seconds, finish, undo=None):
        error = None
        for failure in self.cloud.failures:
            if failure["count"] and re.search(failure["match"], f"{verb} {target}"):
                failure["count"] -= 1
                error = {"code": failure["code"], "message": failure["message"]}
                break
        name = f"{parent}/operations/operation-{next(self._ids)}"
        begun = {"verb": verb, "target": target, "due": time.monotonic() + seconds, "finish": finish, "undo": undo}
        self.cloud.operations[name] = {**begun, "error": error, "done": False, "result": None}
        self._settle()
        return name

    def _operation(self, name, version="v2"):
        operation = self.cloud.operations.get(name)
        if operation is None:
            raise ApiError(404, f"Operation '{name}' was not found")
        kind = "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata"
        about = {"@type": kind, "verb": operation["verb"], "target": operation["target"], "apiVersion": version}
        view = {"name": name, "done": operation["done"], "metadata": about}
        if operation["done"]:
            empty = {"@type": "type.googleapis.com/google.protobuf.Empty"}
            failed = operation["error"]
            view.update({"error": failed} if failed else {"response": operation["result"] or empty})
        return view

    # The Cloud TPU API: https://cloud.google.com/tpu/docs/reference/rest/v2

    def _tpu(self, request, path):
        method, query = request.method, request.query
        if len(path) == 4 and path[3] == "locations":
            return {"locations": [{"name": f"projects/{path[2]}/locations/{z}", "locationId": z} for z in ZONES]}
        zone, (kind, _, action), rest = path[4], path[5].partition(":") if len(path) > 5 else ("", "", ""), path[6:]
        parent = "/".join(path[1:5])
        zone, _, location_action = zone.partition(":")
        if zone not in (*ZONES, "-"):
            raise ApiError(404, f"Location '{zone}' was not found")
        if location_action == "generateServiceIdentity":
            return {"identity": {"email": "service-1@cloud-tpu.iam.gserviceaccount.com"}}
        if kind == "operations":
            return self._operation("/".join(path[1:]))
        if kind == "acceleratorTypes":
            listed = [{"name": f"{parent}/acceleratorTypes/{kind}", "type": kind} for kind in ZONES[zone]]
            return _one_or_list(listed, "acceleratorTypes", rest)
        if kind == "runtimeVersions":
            listed = [{"name": f"{parent}/runtimeVersions/{v}", "version": v} for v in VERSIONS]
            return _one_or_list(listed, "runtimeVersions", rest)
        if kind == "queuedResources":
            return self._queued_resources(request, parent, rest)
        if kind != "nodes":
            raise ApiError(404, f"no such method: {method} {request.path}")
        nodes = self.cloud.nodes
        if not rest and method == "GET":
            return {"nodes": [node for name, node in nodes.items() if _within(name, parent)]}
        if not rest:
            name = f"{parent}/nodes/{query['nodeId']}"
            self._add_node(name, request.json())
            undo = lambda: self._remove_node(name)  # noqa: E731
            started = self._begin(
                parent, "create", name, self.cloud.create_seconds, lambda: self._boot_node(name), undo
            )
            return self._operation(started)
        name, _, action = rest[0].partition(":")
        name = f"{parent}/nodes/{name}"
        node = nodes.get(name)
        if node is None:
            raise ApiError(404, f"Resource '{name}' was not found")
        if method == "GET":
            return node
        if action == "getGuestAttributes":
            hosts = len(node["networkEndpoints"])
            wanted = [w for w in request.json().get("workerIds", []) if w] or [str(i) for i in range(hosts)]
            return {"guestAttributes": [_guest_attributes(node, worker) for worker in wanted]}
        if method == "DELETE":
            node["state"] = "DELETING"
            self.machines.kill(node["id"])
            finish = lambda: self._remove_node(name)  # noqa: E731
            return self._operation(self._begin(parent, "delete", name, self.cloud.delete_seconds, finish))
        if method == "PATCH":
            for field in query.get("updateMask", "").split(","):
                if field in request.json():
                    node[field] = request.json()[field]
            self._authorize(node["id"], node.get("metadata", {}).get("ssh-keys", ""))
            return self._operation(self._begin(parent, "update", name, 0, lambda: _typed(node, "Node")))
        if action in ("start", "stop"):
            if action == "stop":
                node["state"] = "STOPPED"
                self.machines.kill(node["id"])
                finish = lambda: _typed(node, "Node")  # noqa: E731
            else:
                finish = lambda: self._boot_node(name)  # noqa: E731
            return self._operation(self._begin(parent, action, name, self.cloud.delete_seconds, finish))
        raise ApiError(404, f"no such method: {method} {request.path}")

    def _add_node(self, name, body, **more):
        if name in self.cloud.nodes:
            raise ApiError(409, f"Resource '{name}' already exists")
        kind, version = body.get("acceleratorType", "v2-8"), body.get("runtimeVersion")
        zone = name.split("/")[3]
        if kind not in ZONES[zone]:
            raise ApiError(400, f"Accelerator type '{kind}' was not found in zone '{zone}'")
        if version not in VERSIONS:
            raise ApiError(400, f"Runtime version '{version}' was not found")
        number = next(self._ids)
        endpoints = [
            {"ipAddress": f"10.0.0.{i + 2}", "port": 8470, "accessConfig": {"externalIp": fake_vm.address(number, i)}}
            for i in range(_hosts(kind))
        ]
        fixed = {"name": name, "state": "CREATING", "health": "HEALTHY", "apiVersion": "V2", "createTime": _now()}
        fixed.update(id=str(number), acceleratorType=kind, networkEndpoints=endpoints, **more)
        self.cloud.nodes[name] = {**body, **fixed}

    def _boot_node(self, name):
        node = self.cloud.nodes.get(name)
        if node is None:
            return None
        self.machines.boot(node["id"], node["networkEndpoints"][0]["accessConfig"]["externalIp"])
        self._authorize(node["id"], node.get("metadata", {}).get("ssh-keys", ""))
        node["state"] = "READY"
        return _typed(node, "Node")

    def _remove_node(self, name):
        node = self.cloud.nodes.pop(name, None)
        if node is not None:
            self.machines.kill(node["id"])

    def _authorize(self, number, keys):
        shared = next((item["value"] for item in self.cloud.project_metadata if item["key"] == "ssh-keys"), "")
        # Each line is "user:type key comment".
        lines = (line.partition(":")[2] for line in f"{keys}\n{shared}".splitlines())
        self.machines.authorize(number, [line for line in lines if line])

    def _queued_resources(self, request, parent, rest):
        method, query, queued = request.method, request.query, self.cloud.queued
        if method == "GET" and not rest:
            for name in queued:
                self._settle_queued(name)
            return {"queuedResources": [resource for name, resource in queued.items() if _within(name, parent)]}
        name = f"{parent}/queuedResources/{rest[0] if rest else query['queuedResourceId']}"
        if method == "POST":
            if name in queued:
                raise ApiError(409, f"Resource '{name}' already exists")
            body = request.json()
            queued[name] = {**body, "name": name, "createTime": _now(), "state": {"state": "ACCEPTED"}}
            node_names = []
            for spec in body["tpu"]["nodeSpec"]:
                node_name = f"{spec.get('parent', parent)}/nodes/{spec['nodeId']}"
                self._add_node(node_name, spec["node"], queuedResource=name)
                node_names.append(node_name)
                queued[name]["state"]["state"] = "WAITING_FOR_RESOURCES"

            def provide():
                for node_name in node_names:
                    self._boot_node(node_name)
                if name in queued:
                    queued[name]["state"]["state"] = "ACTIVE"

            def fail():
                for node_name in node_names:
                    self._remove_node(node_name)
                if name in queued:
                    queued[name]["state"] = {"state": "FAILED"}

            self._begin(parent, "provide", name, self.cloud.create_seconds, provide, fail)
            return self._operation(
                self._begin(parent, "create", name, 0, lambda: _typed(queued[name], "QueuedResource"))
            )
        if name not in queued:
            raise ApiError(404, f"Resource '{name}' was not found")
        if method == "GET":
            self._settle_queued(name)
            return queued[name]
        nodes = [key for key, node in self.cloud.nodes.items() if node.get("queuedResource") == name]
        if nodes and query.get("force", "").lower() != "true":
            raise ApiError(400, f"Queued resource '{name}' has nodes; delete them first, or use force")
        queued[name]["state"] = {"state": "DELETING"}

        def finish():
            for key in nodes:
                self._remove_node(key)
            queued.pop(name, None)

        return self._operation(self._begin(parent, "delete", name, self.cloud.delete_seconds, finish))

    def _settle_queued(self, name):
        """A queued resource whose node was preempted or is gone is suspended, and keeps its quota."""
        nodes = [node for node in self.cloud.nodes.values() if node.get("queuedResource") == name]
        state = self.cloud.queued[name]["state"]
        if state["state"] == "ACTIVE" and (not nodes or nodes[0]["state"] == "PREEMPTED"):
            state["state"] = "SUSPENDED"

    # Compute Engine: https://cloud.google.com/compute/docs/reference/rest/v1

    def _compute(self, request, path):
        method = request.method
        path = path[path.index("projects") :]
        project, rest = path[1], path[2:]
        base = f"https://www.googleapis.com/compute/v1/projects/{project}"
        if not rest:
            metadata = {"kind": "compute#metadata", "fingerprint": "AA==", "items": self.cloud.project_metadata}
            account = "1-compute@developer.gserviceaccount.com"
            about = {"kind": "compute#project", "name": project, "id": "1", "selfLink": base}
            return {**about, "commonInstanceMetadata": metadata, "defaultServiceAccount": account}
        if rest == ["setCommonInstanceMetadata"]:
            self.cloud.project_metadata = request.json().get("items", [])
            for node in self.cloud.nodes.values():
                self._authorize(node["id"], node.get("metadata", {}).get("ssh-keys", ""))
            for instance in self.cloud.instances.values():
                self._authorize_instance(instance)
            return self._compute_operation(base, "global", "setMetadata", f"projects/{project}")
        if rest[:2] == ["global", "images"]:
            image = {"kind": "compute#image", "name": rest[-1], "selfLink": f"{base}/global/images/{rest[-1]}"}
            return {**image, "status": "READY", "diskSizeGb": "50", "family": rest[-1], "architecture": "X86_64"}
        if rest[:2] == ["aggregated", "instances"]:
            by_zone = {}
            for name, instance in self.cloud.instances.items():
                by_zone.setdefault(f"zones/{name.split('/')[3]}", {"instances": []})["instances"].append(instance)
            return {"kind": "compute#instanceAggregatedList", "items": by_zone}
        if "operations" in rest:
            return self._compute_operations[[part for part in rest if part != "wait"][-1]]
        if rest[0] == "regions":
            return {"kind": "compute#region", "name": rest[1], "status": "UP", "selfLink": f"{base}/regions/{rest[1]}"}
        zones = [
            {"kind": "compute#zone", "name": zone, "status": "UP", "selfLink": f"{base}/zones/{zone}"} for zone in ZONES
        ]
        if rest[0] == "zones" and len(rest) < 3:
            return _one_or_list(zones, "items", rest[1:])
        zone, kind, rest = rest[1], rest[2], rest[3:]
        if kind == "machineTypes":
            return {
                "kind": "compute#machineType",
                "name": rest[0],
                "selfLink": f"{base}/zones/{zone}/machineTypes/{rest[0]}",
            }
        if kind != "instances":
            raise ApiError(404, f"no such method: {method} {request.path}")
        instances, where = self.cloud.instances, f"projects/{project}/zones/{zone}"
        if not rest and method == "GET":
            return {"items": [found for name, found in instances.items() if name.startswith(f"{where}/")]}
        if not rest:
            body = request.json()
            name = f"{where}/instances/{body['name']}"
            if name in instances:
                raise ApiError(409, f"The resource '{name}' already exists")
            self._add_instance(name, f"{base}/zones/{zone}", body)
            return self._compute_operation(base, f"zones/{zone}", "insert", name)
        name = f"{where}/instances/{rest[0]}"
        instance = instances.get(name)
        if instance is None:
            raise ApiError(404, f"The resource '{name}' was not found")
        if len(rest) == 1 and method == "GET":
            return instance
        if method == "DELETE":
            self.machines.kill(instance["id"])
            del instances[name]
        elif rest[1] == "setMetadata":
            instance["metadata"] = request.json()
            self._authorize_instance(instance)
        elif rest[1] == "setLabels":
            instance["labels"] = request.json().get("labels", {})
        elif rest[1] == "stop":
            instance["status"] = "TERMINATED"
            self.machines.kill(instance["id"])
        elif rest[1] == "start":
            instance["status"] = "RUNNING"
            self.machines.boot(instance["id"], _external_address(instance))
            self._authorize_instance(instance)
        else:
            raise ApiError(404, f"no such method: {method} {request.path}")
        verb = "delete" if method == "DELETE" else rest[1]
        return self._compute_operation(base, f"zones/{zone}", verb, name)

    def _compute_operation(self, base, where, verb, target):
        """An operation that is done at once."""
        name = f"operation-{next(self._ids)}"
        about = {"kind": "compute#operation", "id": "1", "name": name, "status": "DONE", "progress": 100}
        about.update(operationType=verb, selfLink=f"{base}/{where}/operations/{name}")
        about["targetLink"] = f"https://www.googleapis.com/compute/v1/{target}"
        if where != "global":
            about["zone"] = f"{base}/{where}"
        self._compute_operations[name] = about
        return about

    def _add_instance(self, name, base, body):
        number = next(self._ids)
        access = {"kind": "compute#accessConfig", "name": "external-nat", "natIP": fake_vm.address(number)}
        network = {"name": "nic0", "networkIP": "10.0.1.2", "accessConfigs": [{**access, "type": "ONE_TO_ONE_NAT"}]}
        fixed = {"kind": "compute#instance", "id": str(number), "status": "RUNNING", "networkInterfaces": [network]}
        fixed.update(zone=base, selfLink=f"{base}/instances/{body['name']}", creationTimestamp=_now())
        self.cloud.instances[name] = {"metadata": {}, "labels": {}, **body, **fixed, "labelFingerprint": "AA=="}
        self.machines.boot(str(number), _external_address(fixed))
        self._authorize_instance(self.cloud.instances[name])

    def _authorize_instance(self, instance):
        items = instance["metadata"].get("items", [])
        self._authorize(instance["id"], next((item["value"] for item in items if item["key"] == "ssh-keys"), ""))

    # The others.

    def _serviceusage(self, request, path):
        services = self.cloud.services
        if path[1] == "operations":
            return {"name": "/".join(path[1:]), "done": True, "response": {}}
        if request.method == "POST":
            last = path[-1]
            asked = request.json().get("serviceIds", []) if last.endswith("batchEnable") else [last.partition(":")[0]]
            self.cloud.services = sorted({*services, *asked})
            return {"name": f"operations/enable-{next(self._ids)}", "done": True, "response": {}}
        listed = [
            {"name": f"projects/1/services/{name}", "state": "ENABLED", "config": {"name": name, "title": name}}
            for name in services
        ]
        return _one_or_list(listed, "services", path[4:])

    def _resourcemanager(self, request, path):
        project, _, action = path[2].partition(":")
        if action == "testIamPermissions":
            asked, held = request.json().get("permissions", []), self.cloud.project_permissions
            return {"permissions": [name for name in asked if held is None or name in held]}
        if action == "getIamPolicy":
            return {"version": 1, "etag": "CAE=", "bindings": []}
        return {"projectId": project, "projectNumber": "1", "name": project, "lifecycleState": "ACTIVE"}

    def _iam(self, request, path):
        del request
        email = path[4] if len(path) > 4 else f"trainer@{path[2]}.iam.gserviceaccount.com"
        account = {"name": f"projects/{path[2]}/serviceAccounts/{email}", "email": email, "projectId": path[2]}
        return account if len(path) > 4 else {"accounts": [account]}

    def _aiplatform(self, request, path):
        """Custom jobs, each of whose states is seen once: it goes on to the next when it is looked at."""
        parent, jobs = "/".join(path[1:5]), self.cloud.jobs
        if len(path) == 6 and request.method == "POST":
            name = f"{parent}/customJobs/{next(self._ids)}"
            jobs[name] = {**request.json(), "name": name, "state": self.cloud.job_states[0], "createTime": _now()}
            return jobs[name]
        if len(path) == 6:
            return {"customJobs": [job for name, job in jobs.items() if _within(name, parent)]}
        name, _, action = "/".join(path[1:]).partition(":")
        if name not in jobs:
            raise ApiError(404, f"The CustomJob '{name}' does not exist")
        job, states = jobs[name], self.cloud.job_states
        if action == "cancel":
            job["state"] = "JOB_STATE_CANCELLED"
            return {}
        if request.method == "DELETE":
            del jobs[name]
            return {"name": f"{parent}/operations/1", "done": True, "response": {}}
        seen = copy.deepcopy(job)
        if job["state"] in states[:-1]:
            job["state"] = states[states.index(job["state"]) + 1]
        if job["state"] == states[-1]:
            job["endTime"] = _now()
            job.update({"error": self.cloud.job_error} if self.cloud.job_error else {})
        return seen

    def _logging(self, request, path):
        del path
        job = re.search(r'resource\.labels\.job_id\s*=\s*"?(\d+)', request.json().get("filter", ""))
        if not job:
            return {"entries": []}
        resource = {"type": "ml_job", "labels": {"job_id": job[1], "task_name": "workerpool0-0"}}
        entry = {"insertId": "1", "logName": "projects/p/logs/workerpool0-0", "timestamp": _now(), "severity": "INFO"}
        return {"entries": [{**entry, "resource": resource, "textPayload": "step 1 of 2", "labels": {}}]}

    def _artifactregistry(self, request, path):
        """Repositories of images, and the tags that builds have put there."""
        repositories, name = self.cloud.repositories, "/".join(path[1:7])
        done = {"name": f"{'/'.join(path[1:5])}/operations/1", "done": True, "response": {}}
        if path[5] == "operations":
            return done
        if len(path) == 6 and request.method == "POST":
            name = f"{name}/{request.query['repositoryId']}"
            if name in repositories:
                raise ApiError(409, "the repository already exists")
            repositories[name] = {"labels": request.json().get("labels", {}), "tags": []}
            return done
        if len(path) == 6:
            return {
                "repositories": [{"name": name, "format": "DOCKER", **about} for name, about in repositories.items()]
            }
        if name not in repositories:
            raise ApiError(404, f"Repository '{name}' was not found")
        if path[-1] == "tags":
            package = "/".join(path[1:-1])
            tags = repositories[name]["tags"]
            return {"tags": [{"name": f"{package}/tags/{tag}"} for image, tag in tags if package.endswith(f"/{image}")]}
        if request.method == "DELETE":
            del repositories[name]
            return done
        return {"name": name, "format": "DOCKER", "labels": repositories[name]["labels"]}

    def _cloudbuild(self, request, path):
        """Builds, which have ended as soon as they are looked at."""
        builds = self.cloud.builds
        if request.method == "POST":
            build = {**request.json(), "id": f"build-{next(self._ids)}", "projectId": path[2], "status": "WORKING"}
            build.update(createTime=_now(), logUrl="https://console.cloud.google.com/cloud-build")
            builds[build["id"]] = build
            bucket, _, folder = build["logsBucket"].partition("://")[2].partition("/")
            log = "/".join(filter(None, [folder, f"log-{build['id']}.txt"]))
            self.store.put(bucket, log, b"Step 1 : FROM\n", {}, {}, request.base)
            return {"name": f"operations/{build['id']}", "metadata": {"build": build}}
        build = builds[path[-1]]
        if build["status"] == "WORKING":
            build["status"] = self.cloud.build_status
            for image in build["images"] if build["status"] == "SUCCESS" else ():
                for variable, value in build.get("substitutions", {}).items():
                    image = image.replace(f"${variable}", value)
                host, project, repository, rest = image.split("/")
                location = host.partition("-docker.")[0]
                where = self.cloud.repositories[f"projects/{project}/locations/{location}/repositories/{repository}"]
                where["tags"].append(rest.split(":"))
        return build


class Handler(gcs_server.Handler):
    """Connections to all of the APIs."""

    def _control(self, body):
        if self.path == "/_sim/reset":
            self.server.api.reset()
        reply = self.server.api.control(self.command, self.path, json.loads(body or b"{}"))
        return reply or super()._control(body)


class Server(gcs_server.Server):
    """The server."""

    handler = Handler


def environment(url, ca_file, base):
    """Environment in which gcloud, gsutil and TensorFlow take the stand-in for Google.

    Args:
      url: address of the server.
      ca_file: certificate of its authority.
      base: environment to start from; its settings of gcloud and credentials are left out.

    Returns:
      A dict.
    """
    inherited = ("GCS_", "CLOUDSDK_", "BOTO_", "GOOGLE_", "STORAGE_EMULATOR")
    trusting = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "HTTPLIB2_CA_CERTS")
    return {
        **{name: value for name, value in base.items() if not name.startswith(inherited)},
        **dict.fromkeys((*trusting, "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"), ca_file),
        **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), url),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        "CLOUDSDK_AUTH_ACCESS_TOKEN": "not-a-real-token",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "0",
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "not-a-real-token",
        "NO_GCE_CHECK": "true",
    }


def machine_environment(url, ca_file):
    """As `environment`, for the machines: they get their tokens from the metadata server, as machines of Google do."""
    variables = environment(url, ca_file, {})
    del variables["NO_GCE_CHECK"]
    return {**variables, **dict.fromkeys(("GCE_METADATA_HOST", "GCE_METADATA_IP"), url.partition("//")[2])}


def _metadata(request):
    """The metadata server: https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys."""
    account = {"email": "1-compute@developer.gserviceaccount.com", "scopes": ["cloud-platform"], "aliases": ["default"]}
    token = {"access_token": "not-a-real-token", "expires_in": 3600, "token_type": "Bearer"}
    answers = {
        "": "computeMetadata/",
        "project/project-id": "my-project",
        "universe/universe-domain": "googleapis.com",
        "instance/service-accounts/default/token": json.dumps(token),
        "instance/service-accounts/default": json.dumps(account),
        f"instance/service-accounts/{account['email']}/token": json.dumps(token),
        f"instance/service-accounts/{account['email']}": json.dumps(account),
    }
    name = request.path[len("/computeMetadata/v1/") :].rstrip("/")
    if name not in answers:
        raise ApiError(404, "Not Found")
    kind = "application/json" if answers[name].startswith("{") else "text/plain"
    return Reply(200, answers[name].encode(), {"Metadata-Flavor": "Google", "Content-Type": kind})


def _hosts(accelerator_type):
    """Number of machines: one for each 4 chips, which are 8 cores. v4 counts cores as v2 and v3 do."""
    return max(1, int(accelerator_type.partition("-")[2]) // 8)


def _guest_attributes(node, worker):
    key = {"namespace": "hostkeys", "key": "ssh-ed25519", "value": f"AAAAC3Nza{int(node['id']):06d}{int(worker):04d}"}
    host = {"namespace": "hosts", "key": "hostname", "value": f"t1v-n-{node['id']}-w-{worker}"}
    return {"queryPath": "", "queryValue": {"items": [key, host]}}


def _external_address(instance):
    return instance["networkInterfaces"][0]["accessConfigs"][0]["natIP"]


def _one_or_list(resources, key, rest):
    """The resource whose name ends in `rest[0]`, or all of them."""
    if not rest:
        return {key: resources}
    for resource in resources:
        if resource["name"].rpartition("/")[2] == rest[0]:
            return resource
    raise ApiError(404, f"Resource '{rest[0]}' was not found")


def _typed(resource, kind):
    return {**resource, "@type": f"type.googleapis.com/google.cloud.tpu.v2.{kind}"}


def _within(name, parent):
    """Whether a name is in a location; "-" stands for all of them."""
    project, location = parent.split("/")[1::2]
    parts = name.split("/")
    return parts[1] == project and location in (parts[3], "-")


def _now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


if __name__ == "__main__":
    os.makedirs(sys.argv[2], exist_ok=True)
    api = GoogleApis(fake_vm.Machines(sys.argv[2]))
    server = Server(int(sys.argv[1]), sys.argv[2], api)
    api.machines.variables = machine_environment(server.url, server.ca_file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    print(server.url, server.ca_file, flush=True)
    try:
        server.serve_forever()
    finally:
        api.machines.kill_all()
