"""What the verbs of the cloud tell in words instead of with a stack trace, and what Google's error messages mean."""

import re


class UsageError(ValueError):
    """A setting that cannot be used. The message names the variable, its value and what is allowed; exit status 2."""


class CloudError(RuntimeError):
    """Something elsewhere failed, or answered what nobody can go on with; exit status 3.

    Attributes:
      kind: what sort of failure it is, one of the keys of `HINTS`.
    """

    def __init__(self, message, kind="other"):
        super().__init__(message)
        self.kind = kind


# Kinds of failures and the patterns that tell them in what gcloud, gsutil or an operation says, most telling first.
_SIGNS = (
    ("not_installed", ("is not installed",)),
    (
        "auth",
        ("active account", "reauth", "invalid_grant", "UNAUTHENTICATED", r"\b401\b"),
        ("invalid authentication credentials", "refreshing (your|auth)"),
    ),
    (
        "no_project",
        (
            r"required property \[?(core/)?project",
            r"find attribute \[project\]",
            "project property is not (currently )?set",
        ),
    ),
    ("no_zone", (r"required property \[?compute/zone", r"find attribute \[zone\]", r"\[--zone\]|\([^()\n]*--zone=")),
    ("billing", ("BILLING_DISABLED", "billing account", "billing to be enabled")),
    ("api", ("SERVICE_DISABLED", "has not been used in project", r"API \[[^\]]+\] not enabled", "it is disabled")),
    ("terminal", ("has terminal state",)),
    (
        "capacity",
        ("no more capacity", "insufficient capacity", "out of capacity", "stockout", "POOL_EXHAUSTED"),
        ("capacity.{0,40}not available",),
    ),
    (
        "quota",
        ("QUOTA_EXCEEDED", "quota (limit|exceeded)", r"exceed\w*.{0,60}quota", "quota.{0,60}exceeded"),
        ("insufficient .{0,20}quota",),
    ),
    ("capacity", (r"code[\"']?: 8\b",)),
    # Of what exists already this is said only when it is asked for too often.
    ("rate", (r"\b429\b", "too many requests", "rateLimitExceeded", "RATE_LIMIT", "rate limit", "RESOURCE_EXHAUSTED")),
    (
        "zone",
        (r"permission denied on '(projects/[\w-]+/)?(locations|zones)/", "unknown zone"),
        (r"location [\w-]+ (is )?not found", "invalid (zone|location)"),
    ),
    ("type", ("accelerator ?type.{0,80}(not found|not supported|invalid|unknown)", "invalid accelerator")),
    ("precondition", (r"\b412\b", "pre-?condition", "conditionNotMet")),
    (
        "permission",
        ("PERMISSION_DENIED", r"\b403\b", "does not have .{0,120}access", "permission .{0,120}denied", "forbidden"),
        ("AccessDenied",),
    ),
    ("exists", ("ALREADY_EXISTS", "already exists", "already own", r"\b409\b", "name is not available")),
    (
        "not_found",
        ("NOT_FOUND", r"\b404\b", "not found", "does not exist", "matched no objects", "no urls matched"),
    ),
    ("unavailable", ("UNAVAILABLE", r"\b50[0234]\b", "internal error", "backend ?error", "DEADLINE_EXCEEDED")),
    (
        "unreachable",
        ("could not resolve", "unable to find the server", "name or service not known", "name resolution"),
        ("connection (refused|reset|aborted|timed out)", "network is unreachable", "max retries exceeded"),
        ("no answer within", "failed to establish", "timed out", "could not reach", r"\[Errno -?\d+\]", "proxy"),
    ),
)
_PATTERNS = [(kind, re.compile("|".join(sum(signs, ())), re.IGNORECASE | re.DOTALL)) for kind, *signs in _SIGNS]
HINTS = {
    "auth": "Log in: gcloud auth login",
    "no_project": "Give PROJECT=id, or: gcloud config set project ID",
    "no_zone": "Give ZONE=us-central1-b or the like, or: gcloud config set compute/zone ZONE",
    "billing": "Link a billing account to the project: https://console.cloud.google.com/billing/linkedaccount",
    "api": "Enable the services: "
    "gcloud services enable tpu.googleapis.com storage.googleapis.com compute.googleapis.com",
    "terminal": "The TPU is gone for good: make watch makes it again and resumes; so does make cloud-up.",
    "capacity": "The zone has no free TPU of this type now: try later or another ZONE, wait in line with QUEUED=1, "
    "or pay for one that is not preempted with ON_DEMAND=1.",
    "quota": "The project may not have so many TPUs of this type here: ask for more at "
    "https://console.cloud.google.com/iam-admin/quotas (spot and on-demand TPUs count apart), or use another ZONE, "
    "TPU_TYPE, or ON_DEMAND=1.",
    "rate": "Google asks for fewer requests: wait a minute and run the command again.",
    "zone": "ZONE is wrong, or has no TPUs for this project; those that have: gcloud compute tpus locations list",
    "type": "The zone does not have TPU_TYPE; it has: gcloud compute tpus accelerator-types list --zone=ZONE",
    "precondition": "Another process was first.",
    "permission": "A role is missing: TPUs take roles/tpu.admin and roles/iam.serviceAccountUser, buckets take "
    "roles/storage.admin.",
    "exists": "The name is taken.",
    "not_found": "",
    "unavailable": "Google's service has a fault of its own: run the command again in a few minutes.",
    "unreachable": "Google cannot be reached from here: check the network, and HTTPS_PROXY if there is a proxy.",
    "not_installed": "",
    "other": "",
}
# Worth trying again at once, without a person.
PASSING = ("rate", "unavailable")


def classify(text):
    """What sort of failure an error message of gcloud, gsutil or a TPU operation tells of.

    Returns:
      One of the keys of `HINTS`.
    """
    return next((kind for kind, pattern in _PATTERNS if pattern.search(text)), "other")


def failure(what, stderr):
    """A `CloudError` that says what failed, why, and what to do about it.

    Args:
      what: what was being done, as in "making the TPU".
      stderr: what the command printed.
    """
    kind = classify(stderr)
    return CloudError(" ".join(filter(None, [f"{what} failed: {reason(stderr)}.", HINTS[kind]])), kind)


def reason(stderr):
    """The one line of what a command printed that says why it failed, without a full stop."""
    lines = [line.strip() for line in stderr.strip().splitlines() if line.strip()]
    if not lines:
        return "no reason was given"
    start = next((i for i, line in enumerate(lines) if re.match(r"ERROR|\w*Exception\b|\w*Error\b", line)), -1)
    said = lines[start]
    inner = re.search(r'"message": "((?:[^"\\]|\\.)*)"', stderr)  # of an operation, as JSON
    if inner:
        return inner[1].replace('\\"', '"').rstrip(".")
    if said.endswith(":") and start + 1 < len(lines):
        said += " " + lines[start + 1]
    return re.sub(r"^ERROR: (\([\w.-]+\) )?", "", said).rstrip(".")
