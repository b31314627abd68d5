"""How long machines have worked for a run and what they cost: an object in the bucket that outlives them."""

import json

FILE_NAME = "machines.json"


class Ledger:
    """The machines that a run has had.

    Args:
      settings: a `Settings`.
      gcloud: a `Gcloud`.
    """

    def __init__(self, settings, gcloud):
        self._url = f"{settings.job}/{FILE_NAME}"
        self._gcloud = gcloud
        self._machines = json.loads(gcloud.storage_cat(self._url) or "{}")

    def note(self, machine, now):
        """Notes that a machine is there and costs.

        Args:
          machine: a `Machine`.
          now: seconds since 1970.
        """
        start = machine.started if machine.started is not None else now
        entry = self._machines.setdefault(machine.identity, {"start": start})
        entry.update(price=machine.price, end=max(now, entry.get("end", start)))

    def save(self):
        """Writes it to the bucket."""
        self._gcloud.storage_write(self._url, json.dumps(self._machines, indent=1) + "\n")

    @property
    def hours(self):
        """Hours of all machines together."""
        return sum(self._hours(entry) for entry in self._machines.values())

    @property
    def dollars(self):
        """What they cost, by the prices they had."""
        return sum(self._hours(entry) * entry["price"] for entry in self._machines.values())

    @staticmethod
    def _hours(entry):
        return max(0.0, entry["end"] - entry["start"]) / 3600
