"""A keyed permutation: where one number of range(size) goes, without the places of the others.

It shuffles data, and is no cipher to keep secrets with: its round function is a plain hash.
"""

from math import isqrt

_BITS = (1 << 64) - 1
_ROUNDS = 12  # with 8, some orders of 5 numbers come twice as often as others


def mixed(*numbers: int) -> int:
    """A hash of numbers and their order, 64 bits: splitmix64's step and finalizer (Steele, Lea and
    Flood, OOPSLA 2014) over each. Of a negative or longer number the low 64 bits count."""
    state = 0
    for number in numbers:
        state = ((state ^ number) + 0x9E3779B97F4A7C15) & _BITS
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _BITS
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _BITS
        state ^= state >> 31
    return state


def permuted(index: int, size: int, key: int) -> int:
    """Where `index` goes in the permutation of range(size) that `key` names.

    A number is a place in a table of a·b ≥ size cells that is as square as can be. Each round shifts
    the row by a hash of the column, or the column by one of the row, which can be undone: a Feistel
    network (Luby and Rackoff, SIAM J. Comput. 1988) over sides that need not be powers of two. Cells
    beyond the size are walked on from until one is inside (Black and Rogaway, CT-RSA 2002, the
    methods "cycle walking" and "generalized Feistel"); they are fewer than a row, so this is rare.
    """
    assert 0 <= index < size, (index, size)
    columns = isqrt(size - 1) + 1
    rows = -(-size // columns)
    while True:
        row, column = divmod(index, columns)
        for number in range(0, _ROUNDS, 2):
            column = (column + mixed(key + number, row)) % columns
            row = (row + mixed(key + number + 1, column)) % rows
        index = row * columns + column
        if index < size:
            return index
