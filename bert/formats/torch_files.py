"""Tensors out of a pytorch_model.bin, without PyTorch and without running what is in the file.

`torch.save` pickles a dictionary, and a pickle may call any function. Only what builds tensors is allowed here. Both
containers are read: the zip archive of PyTorch 1.6 and later, and the sequence of pickles from before.
"""

import collections
import pickle
import struct
import zipfile

import numpy as np
import tensorflow.compat.v1 as tf

from bert.errors import InputError

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_DTYPES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": tf.bfloat16.as_numpy_dtype,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


def read(path, f):
    """Reads a dictionary of tensors.

    Args:
      path: of the file, for messages.
      f: the file, opened in binary mode; it can be searched.

    Returns:
      Dict from name to array.

    Raises:
      InputError: the file is damaged, or has something else in it than tensors.
    """
    try:
        content = _read_zip(f) if zipfile.is_zipfile(f) else _read_legacy(f)
        if not isinstance(content, dict) or not all(isinstance(value, _Tensor) for value in content.values()):
            raise _NotTensors("it has something else in it than tensors")
        return {name: value.array() for name, value in content.items()}
    except _NotTensors as e:
        raise InputError(f"{path}: {e}: only a dictionary of tensors is read, as model.state_dict() is.") from e
    except _DAMAGED as e:
        raise InputError(f"{path}: the file is damaged ({type(e).__name__}: {e}).") from e


# What unpickling and unpacking raise, whatever the cause.
_DAMAGED = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    struct.error,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)


class _NotTensors(Exception):
    """The pickle asks for something that no tensor needs."""


class _Storage:
    """Bytes that tensors are views of; they may come later than the tensors."""

    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)
        self.data = b""


class _Tensor:
    """A view of a storage."""

    def __init__(self, storage, offset, size, stride):
        self._view = storage, offset, size, stride

    def array(self):
        """The values, in an array of their own."""
        storage, offset, size, stride = self._view
        values = np.frombuffer(storage.data, storage.dtype)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride))
        if min(size, default=1) == 0:
            return np.zeros(size, storage.dtype)
        if offset < 0 or min((*size, *stride), default=0) < 0 or last >= len(values):
            raise ValueError(f"a tensor of shape {size} reaches beyond its {len(values)} values")
        strides = [step * storage.dtype.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(values[offset:], size, strides).copy()


def _rebuild_tensor(storage, offset, size, stride, *rest):
    del rest  # whether it has a gradient
    return _Tensor(storage, offset, size, stride)


def _rebuild_parameter(tensor, *rest):
    del rest
    return tensor


_ALLOWED = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    **{("torch", name): dtype for name, dtype in _DTYPES.items()},
}


class _Unpickler(pickle.Unpickler):
    """Builds tensors and dictionaries and nothing else."""

    def __init__(self, f, load_storage):
        super().__init__(f, encoding="utf-8")
        self._load_storage = load_storage

    def find_class(self, module, name):
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _NotTensors(f"it has a {module}.{name} in it") from None

    def persistent_load(self, pid):
        # Strings in old pickles of Python 2 are bytes.
        kind, dtype, key = (part.decode() if isinstance(part, bytes) else part for part in pid[:3])
        if kind != "storage":
            raise _NotTensors(f"it refers to a {kind}")
        return self._load_storage(dtype, key)


def _read_zip(f):
    with zipfile.ZipFile(f) as archive:
        (pickled,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        folder = pickled[: -len("data.pkl")]
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise _NotTensors("its numbers are big-endian")
        storages = {}

        def load_storage(dtype, key):
            if key not in storages:
                storages[key] = _Storage(dtype)
                storages[key].data = archive.read(f"{folder}data/{key}")
            return storages[key]

        with archive.open(pickled) as g:
            return _Unpickler(g, load_storage).load()


def _read_legacy(f):
    f.seek(0)
    storages = {}

    def load_storage(dtype, key):
        return storages.setdefault(key, _Storage(dtype))

    if _Unpickler(f, load_storage).load() != _LEGACY_MAGIC:
        raise _NotTensors("it is no file of PyTorch's")
    for _ in ("protocol version", "machine"):
        _Unpickler(f, load_storage).load()
    content = _Unpickler(f, load_storage).load()
    for key in _Unpickler(f, load_storage).load():
        (count,) = struct.unpack("<q", f.read(8))
        size = count * storages[key].dtype.itemsize
        storages[key].data = f.read(size)
        if len(storages[key].data) != size:
            raise EOFError("it is cut short")
    return content
