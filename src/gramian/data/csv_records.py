"""Find the records of csv text and check them against RFC 4180.

Polars splits a file into lines by counting quotes, and looks at the fields of the columns it reads only. A single quote in
another column, as in `3" reel`, then swallows rows without an error. This scan walks through every byte once. It knows the
number of records for certain, and it names the line of whatever RFC 4180 does not allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

LINE_FEED, CARRIAGE_RETURN, QUOTE, NULL = 10, 13, 34, 0
FIELD_START, UNQUOTED, QUOTED, QUOTE_IN_QUOTED = range(4)  # states
NO_PROBLEM, NULL_BYTE, LONE_RETURN, TEXT_AFTER_QUOTE, SWALLOWED_ROWS, TOO_FEW_FIELDS, TOO_MANY_FIELDS = range(7)
ROWS_IN_A_FIELD = 3  # whole lines within one quoted field that all have a row's number of separators: an unclosed quote


@dataclass(frozen=True)
class Records:
    """The complete records at the start of some csv text.

    Parameters
    ----------
    end
        Where the last complete record ends.
    count
        The number of complete records, empty ones included.
    n_lines
        The number of lines they take.
    empty
        The positions of the records whose fields are all empty, such as blank lines.
    has_stray_quotes
        Whether a quote stands inside an unquoted field, where it is a character like any other.
    has_extra_fields
        Whether a record has more fields than it should, all of them empty.
    problem, problem_line, n_found
        What is not allowed, the line of it counted from 0, and the number of fields there.
    open_quote_line
        The line of the last opening quote, counted from 0. If no record is complete, this quote is not closed.
    """

    end: int
    count: int
    n_lines: int
    empty: np.ndarray
    has_stray_quotes: bool
    has_extra_fields: bool
    problem: int
    problem_line: int
    n_found: int
    open_quote_line: int


def scan_records(text: bytes, separator: str, n_fields: int) -> Records:
    """Scan the complete records of csv text that begins with a record, each of `n_fields` fields."""
    empty = np.empty(text.count(b"\n"), np.int64)
    special = np.zeros(256, np.bool_)
    special[[LINE_FEED, CARRIAGE_RETURN, QUOTE, NULL, ord(separator)]] = True
    numbers = walk_bytes(np.frombuffer(text, np.uint8), ord(separator), n_fields, special, empty)
    end, count, n_lines, n_empty, stray, extra, problem, line, n_found, open_line = numbers
    return Records(end, count, n_lines, empty[:n_empty], bool(stray), bool(extra), problem, line, n_found, open_line)


@njit(cache=True, nogil=True)
def walk_bytes(  # noqa: PLR0915  (a state machine reads best in one piece)
    text: np.ndarray, separator: int, n_fields: int, special: np.ndarray, empty: np.ndarray
) -> tuple[int, int, int, int, bool, bool, int, int, int, int]:
    """Run the state machine of RFC 4180 over the bytes, up to the last complete record or the first problem."""
    state, k, n = FIELD_START, 0, len(text)
    end = count = n_lines = n_empty = line = 0
    fields, last_filled = 1, 0  # of this record; fields count from 1
    stray = extra = False
    quote_line = inner_lines = 0
    inner_fields, are_rows = 1, True  # of the lines within a quoted field
    problem = NO_PROBLEM
    while k < n:
        byte = text[k]
        if not special[byte]:
            if state == QUOTE_IN_QUOTED:
                problem = TEXT_AFTER_QUOTE
                break
            if state == FIELD_START:
                state = UNQUOTED
            last_filled = fields
            k += 1
            while k < n and not special[text[k]]:
                k += 1
            continue
        if byte == NULL:
            problem = NULL_BYTE
            break
        if state == QUOTED:
            if byte == QUOTE:
                state = QUOTE_IN_QUOTED
            else:
                last_filled = fields
                if byte == separator:
                    inner_fields += 1
                elif byte == LINE_FEED:
                    line += 1
                    if inner_lines > 0 and inner_fields != n_fields:
                        are_rows = False
                    inner_lines += 1
                    inner_fields = 1
        elif byte == QUOTE:
            if state == FIELD_START:
                state, quote_line, inner_lines, inner_fields, are_rows = QUOTED, line, 0, 1, True
            elif state == QUOTE_IN_QUOTED:  # "" within quotes is one quote
                state, last_filled = QUOTED, fields
            else:
                stray = True
        elif byte == CARRIAGE_RETURN:
            if k + 1 == n:
                break
            if text[k + 1] != LINE_FEED:
                problem = LONE_RETURN
                break
        else:  # the end of a field
            if state == QUOTE_IN_QUOTED and are_rows and inner_lines > ROWS_IN_A_FIELD:
                problem, line = SWALLOWED_ROWS, quote_line
                break
            state = FIELD_START
            if byte == separator:
                fields += 1
            else:
                line += 1
                if last_filled == 0:
                    empty[n_empty] = count
                    n_empty += 1
                elif fields < n_fields:
                    problem, line = TOO_FEW_FIELDS, line - 1
                    break
                elif last_filled > n_fields:
                    problem, line = TOO_MANY_FIELDS, line - 1
                    break
                extra |= fields > n_fields
                count, end, n_lines = count + 1, k + 1, line
                fields, last_filled = 1, 0
        k += 1
    return end, count, n_lines, n_empty, stray, extra, problem, line, fields, quote_line
