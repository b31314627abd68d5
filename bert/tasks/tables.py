"""Tables of examples as they are found: tab- or comma-separated text, with or without header, or JSON lines.

Files are read as a stream. What a column holds is told by its name in the header, or, where a file of a known task
has no header, by its position.
"""

import csv
import json

from bert.data import text
from bert.errors import InputError


def read(path, columns, positions=None, encoding="utf-8", on_malformed=None):
    """Reads a table.

    Blank lines are passed over; a byte order mark and carriage returns at the ends of lines are no part of the
    cells. In a file that does not end in ".csv" quotation marks have no meaning, as in GLUE's files.

    Args:
      path: a file. Its name tells its form: ".csv": cells separated by commas, quoted if need be; ".json" or
        ".jsonl": an object a line; else cells separated by tabs.
      columns: dict from the roles that are wanted to tuples of names that such a column may have, in any case.
      positions: dict from roles to column numbers, counted from 0 or, if negative, from the end, in a file without
        header; None: such a file is an error.
      encoding: name of the text encoding.
      on_malformed: function that is given the `InputError` of each row with a wrong number of columns, which is then
        left out; None: such a row is an error.

    Yields:
      Pairs of line number and dict from role to the cell: a string, or from JSON any value.

    Raises:
      InputError: names file, line, and columns.
    """
    if path.endswith((".json", ".jsonl")):
        yield from _read_json_lines(path, columns, encoding)
        return
    rows = _read_csv(path, encoding) if path.endswith(".csv") else _read_tsv(path, encoding)
    found, width = None, None
    for line, cells in rows:
        if found is None:
            width = len(cells)
            found = _find_columns(cells, columns)
            if not isinstance(found, str):
                continue
            found = _check_positions(path, line, cells, positions, found)
        if len(cells) != width:
            error = InputError(
                f"{path}:{line}: {len(cells)} columns, but the lines before have {width}; "
                "a stray tab, comma or line end inside a cell?"
            )
            if on_malformed is None:
                raise error
            on_malformed(error)
            continue
        yield line, {role: cells[position] for role, position in found.items()}


def first_row(path, encoding="utf-8"):
    """The cells of the first row of a table, or the keys of the first object of a JSON lines file; [] if empty."""
    if path.endswith((".json", ".jsonl")):
        return next((list(row) for _, row in _read_objects(path, encoding)), [])
    rows = _read_csv(path, encoding) if path.endswith(".csv") else _read_tsv(path, encoding)
    return next((cells for _, cells in rows), [])


def _read_tsv(path, encoding):
    for number, line in text.read_lines(path, encoding):
        if line.strip():
            yield number, line.split("\t")


def _read_csv(path, encoding):
    line = 1
    reader = csv.reader((line + "\n" for _, line in text.read_lines(path, encoding)), strict=True)
    csv.field_size_limit(1 << 30)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1  # where the next row begins
    except csv.Error as e:
        raise InputError(f"{path}:{line}: not well-formed CSV: {e}.") from e


def _read_objects(path, encoding):
    for number, line in text.read_lines(path, encoding):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if "\\ud" in line.lower():
                json.dumps(row, ensure_ascii=False).encode()
        except json.JSONDecodeError as e:
            raise InputError(
                f"{path}:{number}, column {e.colno}: not valid JSON, of which an object a line is expected: {e.msg}."
            ) from e
        except UnicodeEncodeError as e:  # which JSON can write, but not UTF-8
            raise InputError(f"{path}:{number}: there is half a character in it ({e.reason}).") from e
        except RecursionError as e:
            raise InputError(f"{path}:{number}: the JSON is nested too deeply.") from e
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number}: an object a line is expected, not {type(row).__name__}.")
        yield number, row


def _read_json_lines(path, columns, encoding):
    names = None
    for number, row in _read_objects(path, encoding):
        if names is None:
            names = _find_columns(list(row), columns)
            if isinstance(names, str):
                raise InputError(f"{path}:{number}: {names}; the object has {', '.join(row)}.")
            keys = list(row)
            names = {role: keys[position] for role, position in names.items()}
        missing = [name for name in names.values() if name not in row]
        if missing:
            raise InputError(f"{path}:{number}: no {missing[0]!r}; the object has {', '.join(row)}.")
        for name in names.values():
            values = row[name] if isinstance(row[name], list) else [row[name]]
            if any(isinstance(value, (dict, list)) for value in values):
                raise InputError(
                    f"{path}:{number}, column {name!r}: text or a number is expected, not {row[name]!r:.60}."
                )
        yield number, {role: row[name] for role, name in names.items()}


def _find_columns(cells, columns):
    """Dict from role to position, if the cells are a header that has them all; else what is missing, in words."""
    names = [cell.strip().lower() for cell in cells]
    found = {}
    for role, candidates in columns.items():
        matches = [names.index(name.lower()) for name in candidates if name.lower() in names]
        if not matches:
            return f"no column named {' or '.join(candidates)}"
        if names.count(names[matches[0]]) > 1:
            return f"several columns named {names[matches[0]]}"
        found[role] = matches[0]
    return found


def _check_positions(path, line, cells, positions, missing):
    """The positions in a file without header, if it can be one."""
    if positions and len(cells) >= max(positions.values()) + 1 + any(position < 0 for position in positions.values()):
        return {role: position % len(cells) for role, position in positions.items()}
    hint = ""
    if len(cells) == 1 and "," in cells[0]:
        hint = " It looks separated by commas: then its name should end in .csv."
    shown = ", ".join(cell[:30] for cell in cells[:12])
    raise InputError(f"{path}:{line}: {missing}; the first line has {len(cells)} columns: {shown}.{hint}")
