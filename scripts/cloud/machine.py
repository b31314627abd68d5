"""The machine that runs the program, whether it is a TPU VM or a VM of Compute Engine: one look for both."""

import calendar
import dataclasses
import time

from scripts.cloud import prices, tpu, tpu_types
from scripts.cloud.errors import UsageError

# The states of a VM of Compute Engine in the words of the TPU's.
_STATES = {
    "RUNNING": tpu.READY,
    "PROVISIONING": "CREATING",
    "STAGING": "STARTING",
    "REPAIRING": "REPAIRING",
    "SUSPENDING": "STOPPING",
    "SUSPENDED": "STOPPED",
    "STOPPING": "STOPPING",
    "TERMINATED": "STOPPED",
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """What is to be seen of the machine.

    Attributes:
      state: one of the TPU API's states, or "ABSENT".
      is_healthy: whether the API has no complaint.
      complaint: what it complains about; empty if it does not.
      identity: another one for each machine that is made.
      started: when it began to cost, in seconds since 1970; None if nobody says.
      price: dollars an hour; 0.0 if it is not known.
      kind: as in "v3-8, spot".
      maintenance: when maintenance is announced for, as the API writes it; empty if it is not.
    """

    state: str
    is_healthy: bool = True
    complaint: str = ""
    identity: str = ""
    started: float = None
    price: float = 0.0
    kind: str = ""
    maintenance: str = ""


def look(settings, gcloud):
    """The `Machine` as it is now."""
    if settings.control_vm:
        vm = gcloud.instance_describe()
        if vm is None:
            return Machine("ABSENT")
        since = vm.get("lastStartTimestamp") or vm.get("creationTimestamp", "")
        return Machine(
            state=_STATES.get(vm.get("status"), "UNKNOWN"),
            identity=f"{vm.get('id', '')}-{since}",
            started=seconds(since),
            price=settings.price_per_hour or 0.0,
            kind=vm.get("machineType", "").rpartition("/")[2],
        )
    node = gcloud.tpu_describe()
    if node is None:
        return Machine("ABSENT")
    health = node.get("health", "HEALTHY")
    is_healthy = health in ("HEALTHY", "HEALTH_UNSPECIFIED")
    scheduling = node.get("schedulingConfig") or {}
    is_spot = bool(scheduling.get("spot") or scheduling.get("preemptible"))
    try:
        tpu_type = tpu_types.parse(tpu.type_of(node))
    except UsageError:  # one that was made by hand, of which the price is not known
        tpu_type = None
    return Machine(
        state=tpu.state(node),
        is_healthy=is_healthy,
        complaint="" if is_healthy else f"{health} {node.get('healthDescription', '')}".strip(),
        identity=f"{node.get('id', '')}-{node.get('createTime', '')}",
        started=seconds(node.get("createTime", "")),
        price=prices.per_hour(settings, tpu_type or settings.tpu_type, is_spot),
        kind=f"{tpu.type_of(node)}, {'spot' if is_spot else 'on demand'}",
        maintenance=(node.get("upcomingMaintenance") or {}).get("windowStartTime", ""),
    )


def seconds(timestamp):
    """Seconds since 1970 of a time such as 2026-01-31T12:00:00.123456789Z or 2026-01-31T04:00:00.123-08:00, or None."""
    try:
        seconds = calendar.timegm(time.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
    offset = timestamp[-6:]
    if offset[:1] in ("+", "-") and offset[3:4] == ":":
        seconds -= int(offset[0] + "1") * (int(offset[1:3]) * 3600 + int(offset[4:6]) * 60)
    return float(seconds)
