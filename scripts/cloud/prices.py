"""What a TPU costs, as far as a list price tells.

Dollars per chip and hour on demand in us-central1 (v4: us-central2), from Google's price list,
https://cloud.google.com/tpu/pricing, as of 2024. The price of a TPU VM includes the machine around the TPU. Other
regions cost some 10 % more, and prices change: PRICE_PER_HOUR overrides them.
"""

AS_OF = 2024
_PER_CHIP = {"v2": 1.125, "v3": 2.00, "v4": 3.22}
_PER_CHIP_OF_PODS = {"v2": 1.50, "v3": 2.00, "v4": 3.22}
# Of machines without a GPU, https://cloud.google.com/compute/vm-instance-pricing, for a control VM.
_MACHINES = {"e2-standard-4": 0.134, "e2-standard-8": 0.268, "n1-standard-4": 0.190, "n1-standard-8": 0.380}
_SPOT = 0.3  # of the price on demand


def per_hour(settings, tpu_type=None, is_spot=None):
    """Dollars an hour of a TPU.

    Args:
      settings: a `Settings`.
      tpu_type: a `TpuType`; None: that of the settings.
      is_spot: whether it can be preempted; None: as the settings want it.
    """
    if settings.price_per_hour is not None:
        return settings.price_per_hour
    tpu_type = tpu_type or settings.tpu_type
    is_spot = not settings.on_demand if is_spot is None else is_spot
    per_chip = (_PER_CHIP_OF_PODS if tpu_type.is_pod else _PER_CHIP)[tpu_type.generation]
    return tpu_type.chips * per_chip * (_SPOT if is_spot else 1)


def describe(settings):
    """The price in words, as in "about $2.40 an hour (spot, list price of 2024)"."""
    if settings.price_per_hour is not None:
        return f"${settings.price_per_hour:.2f} an hour (PRICE_PER_HOUR)"
    if settings.control_vm:
        price = None if settings.accelerator else _MACHINES.get(settings.machine_type)
        if price is None:
            return "at a price that is not known here (https://cloud.google.com/compute/vm-instance-pricing)"
        return f"about ${price:.2f} an hour (on demand, list price of {AS_OF})"
    price = per_hour(settings)
    return f"about ${price:.2f} an hour ({'on demand' if settings.on_demand else 'spot'}, list price of {AS_OF})"
